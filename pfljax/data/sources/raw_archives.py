"""Raw archives in a folder: the idx files of MNIST, packed WebP strips of CIFAR."""

import gzip
import io
import math
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.data.arrays import Arrays, from_arrays
from pfljax.data.edge import as_integers, read_npz, reading, type_text
from pfljax.data.sources.cifar import CIFAR100, CIFAR100_COARSE, SOURCE

FETCH = "fetch it again"
DIGITS = 10  # classes of MNIST and of Fashion-MNIST
Columns = dict[str, Any]  # values of each feature, [N, ...]
PREFIX = {"train": "train", "test": "t10k"}
CIFAR10 = (
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
CIFAR100_20K = "packed/cifar100_20k5k_webp.npz"


def read(
    name: str, raw_dir: Path
) -> tuple[dict[str, Columns], dict[str, tuple[str, ...]]]:
    """Returns ({split: columns}, {feature: class names}) of the data set `name`.

    Expects raw_dir/mnist/*.gz, raw_dir/fashion_mnist/*.gz,
    raw_dir/packed/cifar10_webp.npz or raw_dir/packed/cifar100_webp.npz.

    Raises:
        FileNotFoundError: names the file that was expected.
        ValueError: names the file that is cut, damaged or another.
    """
    if name in ("mnist", "fashion_mnist"):
        return {split: _idx_split(raw_dir / name, split) for split in PREFIX}, {}
    if name == "cifar10":
        columns = cifar(raw_dir / "packed/cifar10_webp.npz", len(CIFAR10))
        return columns, {"label": CIFAR10}
    if name == "cifar100":
        columns = cifar(raw_dir / "packed/cifar100_webp.npz", len(CIFAR100))
        return columns, {"label": CIFAR100, "coarse_label": CIFAR100_COARSE}
    raise FileNotFoundError(
        "raw archives are known for mnist, fashion_mnist, cifar10 and cifar100 only"
    )


def read_cifar100_20k(raw_dir: Path) -> Arrays:
    """Reads the first 20,000 + 5,000 images of CIFAR-100 in their order."""
    # Train and test, in the order of OFFICIAL_NAMES.
    parts = list(cifar(raw_dir / CIFAR100_20K, len(CIFAR100)).values())
    size = [len(part["label"]) for part in parts]
    return from_arrays(
        np.concatenate([part["image"] for part in parts]),
        np.concatenate([part["label"] for part in parts]),
        official=np.repeat(range(len(parts)), size),
        num_classes=len(CIFAR100),
        name="cifar100_20k",
        source=SOURCE,
        class_names=CIFAR100,
    )


def _idx_split(folder: Path, split: str) -> Columns:
    stem = PREFIX[split]
    image_file = require_file(folder / f"{stem}-images-idx3-ubyte.gz")
    label_file = require_file(folder / f"{stem}-labels-idx1-ubyte.gz")
    with reading(image_file, FETCH):
        image = _idx(image_file, 3)
        if image.shape[1:] != (28, 28):
            raise ValueError(f"its images are {list(image.shape[1:])}, not 28 x 28")
    with reading(label_file, FETCH):
        label = _idx(label_file, 1)
        _check_labels(label, DIGITS, len(image))
    return {"image": image, "label": label}


def _idx(file: Path, rank: int) -> np.ndarray:
    """Reads u8[N, ...] from a gzipped idx file: 0, 0, 8, rank, sizes, bytes."""
    try:
        data = gzip.decompress(file.read_bytes())
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"it is no whole gzip file: {error}") from error
    head = 4 + 4 * rank
    if len(data) < head or data[:4] != bytes([0, 0, 8, rank]):
        raise ValueError(f"it is no idx file of unsigned bytes in {rank} dimensions")
    shape = np.frombuffer(data, ">u4", rank, offset=4).tolist()
    if math.prod(shape) != len(data) - head:
        raise ValueError(
            f"its head says {shape}, but it holds {len(data) - head} bytes"
        )
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


def _check_labels(label: np.ndarray, num_classes: int, count: int) -> None:
    as_integers("labels", label)
    if len(label) != count or not count:
        raise ValueError(f"it has {len(label)} labels for {count} images")
    if label.min() < 0 or label.max() >= num_classes:
        raise ValueError(
            f"its labels are from {label.min()} to {label.max()}; expected 0 to "
            f"{num_classes - 1}"
        )


def cifar(file: Path, num_classes: int) -> dict[str, Columns]:
    """Reads both splits: id, image u8[N, 32, 32, 3], label, maybe coarse_label.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged or another.
    """
    require_file(file)
    forms = ("y_{}", "{}_webp", "{}_offsets")
    needed = [form.format(split) for split in PREFIX for form in forms]
    optional = [f"coarse_{split}" for split in PREFIX]
    with reading(file, FETCH):
        stored = read_npz(file, needed, optional)
        return {split: _cifar_split(stored, split, num_classes) for split in PREFIX}


def _cifar_split(
    stored: dict[str, np.ndarray], split: str, num_classes: int
) -> Columns:
    label = stored[f"y_{split}"]
    image = _webp(stored[f"{split}_webp"], stored[f"{split}_offsets"])
    # The last strip may be filled up beyond the images that count.
    image = image[: label.size]
    _check_labels(label, num_classes, len(image))
    columns = {
        "id": [f"{split}_{i:05d}" for i in range(len(label))],
        "image": image,
        "label": label,
    }
    coarse = stored.get(f"coarse_{split}")
    if coarse is not None:
        _check_labels(coarse, len(CIFAR100_COARSE), len(image))
        columns["coarse_label"] = coarse
    return columns


def _webp(strips: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Decodes u8[N, 32, 32, 3]: strip i is bytes offsets_i .. offsets_i+1."""
    as_integers("offsets", offsets)
    rising = len(offsets) > 1 and (np.diff(offsets.astype(np.int64)) > 0).all()
    if not rising or offsets[0] < 0 or offsets[-1] > strips.size:
        raise ValueError(f"its offsets are no spans of its {type_text(strips)} bytes")
    images = []
    for start, end in pairwise(offsets):
        strip = decode(strips[start:end].tobytes())
        if strip.shape[0] % 32 or strip.shape[1] != 32:
            raise ValueError(
                f"a strip has {list(strip.shape[:2])} pixels; expected images of 32 x "
                "32 below each other"
            )
        images.append(strip.reshape(-1, 32, 32, 3))
    return np.concatenate(images)


def decode(content: bytes) -> np.ndarray:
    """Decodes a picture to u8[height, width, 3].

    Raises:
        ValueError: it cannot be decoded.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError("a picture cannot be decoded") from error


def require_file(file: Path) -> Path:
    """Returns the file, if it is there.

    Raises:
        FileNotFoundError: it is not.
    """
    if not file.is_file():
        raise FileNotFoundError(f"no {file.name} in {file.parent}")
    return file
