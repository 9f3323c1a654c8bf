"""Raw archives in a folder: the idx files of MNIST, packed WebP strips of CIFAR.

Examples are in the order of TFDS, which it takes from a hash of their numbers.
"""

import gzip
import hashlib
import io
from itertools import pairwise
from pathlib import Path

import numpy as np

from pfljax.data.arrays import Arrays, from_arrays
from pfljax.data.files import read_npz, reading
from pfljax.data.sources.cifar import CIFAR10, CIFAR100, SOURCE

FETCH = "fetch it again"
PREFIX = {"train": "train", "test": "t10k"}  # of the files of MNIST
FASHION = (
    "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, "
    "Ankle boot"
)
CLASS_NAMES = {
    "mnist": tuple("0123456789"),
    "fashion_mnist": tuple(FASHION.split(", ")),
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "cifar100_20k": CIFAR100,
}
PACKED = {
    "cifar10": "packed/cifar10_webp.npz",
    "cifar100": "packed/cifar100_webp.npz",
    "cifar100_20k": "packed/cifar100_20k5k_webp.npz",
}
SOURCES = {
    "mnist": "Y. LeCun, C. Cortes, C. Burges; CC BY-SA 3.0",
    "fashion_mnist": "Xiao et al. 2017, arXiv 1708.07747; MIT",
    "cifar10": SOURCE,
    "cifar100": SOURCE,
    "cifar100_20k": SOURCE,
    "emnist": "Cohen et al. 2017, arXiv 1702.05373; no licence stated",
}


def read(name: str, raw_dir: Path) -> Arrays:
    """Reads a data set from its raw archives; `cifar100_20k` in the original order.

    Expects raw_dir/mnist/*.gz, raw_dir/fashion_mnist/*.gz, or a file of `PACKED`.

    Raises:
        FileNotFoundError: the file that was expected is not there.
        ValueError: the file is damaged or another.
    """
    if name not in CLASS_NAMES:
        known = ", ".join(CLASS_NAMES)
        raise FileNotFoundError(f"raw archives are known for {known} only")
    file = raw_dir / PACKED.get(name, name)
    read_split = _read_packed if name in PACKED else _read_idx
    images = []
    labels = []
    for split in PREFIX:
        image, label = read_split(file, split)
        order = np.arange(len(label))
        if name != "cifar100_20k":
            order = tfds_order(split, len(label))
        with reading(file, FETCH):
            images.append(image[order])
            labels.append(label[order])
    with reading(file, FETCH):
        return from_arrays(
            np.concatenate(images),
            np.concatenate(labels),
            # Train and test, in the order of OFFICIAL_NAMES.
            official=np.repeat(range(len(labels)), [len(label) for label in labels]),
            num_classes=len(CLASS_NAMES[name]),
            name=name,
            source=SOURCES[name],
            class_names=CLASS_NAMES[name],
        )


def tfds_order(split: str, count: int) -> np.ndarray:
    """Returns the numbers of a split's examples in the order in which TFDS has them."""
    hashes = [hashlib.md5(f"{split}{i}".encode()).digest() for i in range(count)]
    return np.array(sorted(range(count), key=hashes.__getitem__), np.int64)


def decode(content: bytes) -> np.ndarray:
    """Decodes a picture to u8[height, width, 3]."""
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))


def _read_idx(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Reads images u8[N, 28, 28, 1] and labels u8[N] of MNIST's files."""
    image = _idx(folder / f"{PREFIX[split]}-images-idx3-ubyte.gz", (28, 28, 1))
    return image, _idx(folder / f"{PREFIX[split]}-labels-idx1-ubyte.gz", ())


def _idx(file: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Reads u8[N, *shape] from a gzipped idx file: 0, 0, 8, rank, sizes, bytes."""
    with reading(file, FETCH):
        data = gzip.decompress(file.read_bytes())
        head = 4 + 4 * data[3]
        count = int.from_bytes(data[4:8])
        return np.frombuffer(data, np.uint8, offset=head).reshape(count, *shape)


def _read_packed(file: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Reads images u8[N, 32, 32, 3] and labels; strip i is bytes offset_i to i + 1."""
    with reading(file, FETCH):
        file.stat()  # raises a FileNotFoundError
        names = [f"y_{split}", f"{split}_webp", f"{split}_offsets"]
        label, strips, offsets = read_npz(file, names).values()
        images = [
            decode(strips[start:end].tobytes()).reshape(-1, 32, 32, 3)
            for start, end in pairwise(offsets)
        ]
        # The last strip may be filled up beyond the images that count.
        return np.concatenate(images)[: len(label)], label
