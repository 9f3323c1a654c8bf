"""Raw archives in a folder: the idx files of MNIST, packed WebP strips of CIFAR."""

import gzip
import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.data.sources.cifar import CIFAR100, CIFAR100_COARSE

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
    """
    packed = raw_dir / "packed"
    if name in ("mnist", "fashion_mnist"):
        columns = {split: _idx_split(raw_dir / name, split) for split in PREFIX}
        return columns, {}
    if name == "cifar10":
        return cifar(first(packed, "cifar10_webp.npz")), {"label": CIFAR10}
    if name == "cifar100":
        class_names = {"label": CIFAR100, "coarse_label": CIFAR100_COARSE}
        return cifar(first(packed, "cifar100_webp.npz")), class_names
    raise FileNotFoundError(
        "raw archives are known for mnist, fashion_mnist, cifar10 and cifar100 only"
    )


def _idx_split(folder: Path, split: str) -> Columns:
    stem = folder / PREFIX[split]
    return {
        "image": _idx(Path(f"{stem}-images-idx3-ubyte.gz")),
        "label": _idx(Path(f"{stem}-labels-idx1-ubyte.gz")),
    }


def _idx(file: Path) -> np.ndarray:
    """u8[N, ...] of a gzipped idx file: 0, 0, 8, rank, big-endian sizes, bytes."""
    data = gzip.decompress(first(file.parent, file.name).read_bytes())
    if len(data) < 4 or data[:3] != b"\x00\x00\x08":
        raise ValueError(f"{file} is not an idx file of unsigned bytes")
    rank = data[3]
    shape = np.frombuffer(data, ">u4", rank, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def cifar(file: Path) -> dict[str, Columns]:
    """Both splits of a packed CIFAR: id, image u8[N, 32, 32, 3], label, coarse_label.

    Without `coarse_label` where the file has none.
    """
    columns: dict[str, Columns] = {}
    with np.load(file) as stored:
        for split in PREFIX:
            label = stored[f"y_{split}"]
            strips = stored[f"{split}_webp"]
            offsets = stored[f"{split}_offsets"]
            columns[split] = {
                "id": [f"{split}_{i:05d}" for i in range(len(label))],
                "image": _webp(strips, offsets, len(label)),
                "label": label,
            }
            if f"coarse_{split}" in stored.files:
                columns[split]["coarse_label"] = stored[f"coarse_{split}"]
    return columns


def _webp(strips: np.ndarray, offsets: np.ndarray, count: int) -> np.ndarray:
    """u8[count, 32, 32, 3]: strip i is bytes offsets_i .. offsets_i+1, many images."""
    from PIL import Image

    images = []
    for start, end in pairwise(offsets):
        strip = Image.open(io.BytesIO(strips[start:end].tobytes())).convert("RGB")
        images.append(np.asarray(strip).reshape(-1, 32, 32, 3))
    # The last strip may be filled up beyond the images that count.
    return np.concatenate(images)[:count]


def first(folder: Path, pattern: str) -> Path:
    """The first file of `folder` that matches, by name; FileNotFoundError if none."""
    files = sorted(folder.glob(pattern))
    if not files:
        raise FileNotFoundError(f"no {pattern} in {folder}")
    return files[0]
