"""Raw archives in a folder: the idx files of MNIST, packed WebP strips of CIFAR."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.data.edge import as_integers, told
from pfljax.data.sources import archives
from pfljax.data.sources.cifar import CIFAR100, CIFAR100_COARSE

FETCH = "fetch it again"
DIGITS = 10  # classes of MNIST and of Fashion-MNIST
Columns = dict[str, Any]  # values of each feature, [N, ...]
PREFIX = {"train": "train", "test": "t10k"}
CIFAR10: tuple[str, ...] = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


def read(
    name: str, raw_dir: Path
) -> tuple[dict[str, Columns], dict[str, tuple[str, ...]]]:
    """({split: columns}, {feature: class names}) of the data set `name`.

    Expects raw_dir/mnist/*.gz, raw_dir/fashion_mnist/*.gz,
    raw_dir/packed/cifar10_webp.npz or raw_dir/packed/cifar100_webp.npz.

    Raises:
        FileNotFoundError: says which file was expected, or which names are known.
        ValueError: names the file that is cut, damaged or another.
    """
    packed = raw_dir / "packed"
    if name in ("mnist", "fashion_mnist"):
        columns = {split: _idx_split(raw_dir / name, split) for split in PREFIX}
        return columns, {}
    if name == "cifar10":
        return cifar(first(packed, "cifar10_webp.npz"), len(CIFAR10)), {
            "label": CIFAR10
        }
    if name == "cifar100":
        class_names = {"label": CIFAR100, "coarse_label": CIFAR100_COARSE}
        return cifar(first(packed, "cifar100_webp.npz"), len(CIFAR100)), class_names
    raise FileNotFoundError(
        "raw archives are known for mnist, fashion_mnist, cifar10 and cifar100 only"
    )


def _idx_split(folder: Path, split: str) -> Columns:
    stem = folder / PREFIX[split]
    image_file = first(folder, f"{stem.name}-images-idx3-ubyte.gz")
    label_file = first(folder, f"{stem.name}-labels-idx1-ubyte.gz")
    with archives.about(image_file, FETCH):
        image = _idx(image_file, 3)
        if image.shape[1:] != (28, 28):
            raise ValueError(f"its images are {list(image.shape[1:])}, not 28 x 28")
    with archives.about(label_file, FETCH):
        label = _idx(label_file, 1)
        _check_labels(label, DIGITS, len(image))
    return {"image": image, "label": label}


def _idx(file: Path, rank: int) -> np.ndarray:
    """u8[N, ...] of a gzipped idx file: 0, 0, 8, rank, big-endian sizes, bytes."""
    data = archives.unzipped(file)
    head = 4 + 4 * rank
    if len(data) < head or data[:4] != bytes([0, 0, 8, rank]):
        raise ValueError(f"it is no idx file of unsigned bytes in {rank} dimensions")
    shape = np.frombuffer(data, ">u4", rank, offset=4).tolist()
    if math.prod(shape) != len(data) - head:
        raise ValueError(
            f"its head says {shape}, but it holds {len(data) - head} bytes"
        )
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


def _check_labels(label: np.ndarray, num_classes: int, rows: int) -> None:
    """ValueError unless these are labels of so many rows, at least one."""
    as_integers("labels", label)
    if len(label) != rows or not rows:
        raise ValueError(f"it has {len(label)} labels for {rows} images")
    if label.min() < 0 or label.max() >= num_classes:
        raise ValueError(
            f"its labels are from {label.min()} to {label.max()}; expected 0 to "
            f"{num_classes - 1}"
        )


def cifar(file: Path, num_classes: int) -> dict[str, Columns]:
    """Both splits of a packed CIFAR: id, image u8[N, 32, 32, 3], label, coarse_label.

    Without `coarse_label` where the file has none.

    Raises:
        ValueError: the file is damaged or another.
    """
    columns: dict[str, Columns] = {}
    forms = ("y_{}", "{}_webp", "{}_offsets")
    needed = [form.format(split) for split in PREFIX for form in forms]
    optional = [f"coarse_{split}" for split in PREFIX]
    with archives.opened(file, needed, optional, mend=FETCH) as stored:
        for split in PREFIX:
            label = stored[f"y_{split}"]
            image = _webp(stored[f"{split}_webp"], stored[f"{split}_offsets"])
            # The last strip may be filled up beyond the images that count.
            image = image[: label.size]
            _check_labels(label, num_classes, len(image))
            columns[split] = {
                "id": [f"{split}_{i:05d}" for i in range(len(label))],
                "image": image,
                "label": label,
            }
            coarse = stored.get(f"coarse_{split}")
            if coarse is not None:
                _check_labels(coarse, len(CIFAR100_COARSE), len(image))
                columns[split]["coarse_label"] = coarse
    return columns


def _webp(strips: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """u8[N, 32, 32, 3]: strip i is bytes offsets_i .. offsets_i+1, many images."""
    as_integers("offsets", offsets)
    rising = len(offsets) > 1 and (np.diff(offsets.astype(np.int64)) > 0).all()
    if not rising or offsets[0] < 0 or offsets[-1] > strips.size:
        raise ValueError(f"its offsets are no spans of its {told(strips)} bytes")
    if strips.ndim != 1 or strips.dtype != np.uint8:
        raise ValueError(f"its pictures are {told(strips)}; expected bytes uint8[N]")
    images = []
    for start, end in pairwise(offsets):
        strip = archives.picture(strips[start:end].tobytes())
        if strip.shape[0] % 32 or strip.shape[1] != 32:
            raise ValueError(
                f"a strip has {list(strip.shape[:2])} pixels; expected images of 32 x "
                "32 below each other"
            )
        images.append(strip.reshape(-1, 32, 32, 3))
    return np.concatenate(images)


def first(folder: Path, pattern: str) -> Path:
    """The first file of `folder` that matches, by name; FileNotFoundError if none."""
    files = sorted(folder.glob(pattern))
    if not files:
        raise FileNotFoundError(f"no {pattern} in {folder}")
    if not files[0].is_file():
        raise ValueError(f"{files[0]} is a folder or a pipe; expected a file: {FETCH}")
    return files[0]
