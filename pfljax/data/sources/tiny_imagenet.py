"""Tiny-ImageNet from its official folder, decoded into one array.

Le and Yang 2015, http://cs231n.stanford.edu/tiny-imagenet-200.zip. Of the folder these
are read: wnids.txt, words.txt, train/WNID/images/*.JPEG, val/val_annotations.txt and
val/images/*.JPEG. The official test folder has no labels.
"""

from pathlib import Path

import numpy as np

from pfljax.data.arrays import OFFICIAL_TEST, OFFICIAL_TRAIN, Arrays, from_arrays
from pfljax.data.files import reading
from pfljax.data.sources.raw_archives import decode

FOLDER = "tiny-imagenet-200"
SIZE = 64  # pixels each way
UNPACK = "unpack the archive again"
Pictures = list[tuple[Path, int]]  # files with their labels


def read(raw_dir: Path) -> Arrays:
    """Reads Tiny-ImageNet below `raw_dir`, u8[110000, 64, 64, 3], 200 classes.

    Label k is the k-th WNID in sorted order, as torchvision's ImageFolder has it. First
    come train's examples by label and file name, then val's, the official test
    examples, in the order of their annotations. Grey pictures have three equal
    channels.

    Raises:
        FileNotFoundError: a file is not there.
        ValueError: a picture or a line is not as in the official folder.
    """
    folder = raw_dir / FOLDER
    wnids = sorted(wnid for (wnid,) in _fields(folder / "wnids.txt", 1))
    words = dict(_fields(folder / "words.txt", 2))
    train = _train(folder / "train", wnids)
    test = _val(folder / "val", wnids)
    pictures = train + test
    x = np.empty((len(pictures), SIZE, SIZE, 3), np.uint8)
    for pixels, (file, _) in zip(x, pictures, strict=True):
        pixels[:] = _decode(file)
    return from_arrays(
        x,
        np.array([label for _, label in pictures]),
        official=[OFFICIAL_TRAIN] * len(train) + [OFFICIAL_TEST] * len(test),
        num_classes=len(wnids),
        name="tiny_imagenet",
        source="Y. Le, X. Yang 2015, Stanford CS231n, of ImageNet; no licence stated",
        class_names=[words.get(wnid, wnid) for wnid in wnids],
    )


def _train(folder: Path, wnids: list[str]) -> Pictures:
    pictures = []
    for label, wnid in enumerate(wnids):
        images = folder / wnid / "images"
        files = sorted(images.glob("[!.]*.JPEG"))
        if not files:
            raise FileNotFoundError(f"no *.JPEG in {images}")
        pictures += [(file, label) for file in files]
    return pictures


def _val(folder: Path, wnids: list[str]) -> Pictures:
    annotations = folder / "val_annotations.txt"
    lines = _fields(annotations, 6)
    with reading(annotations, UNPACK):
        return [
            (folder / "images" / name, wnids.index(wnid)) for name, wnid, *_ in lines
        ]


def _fields(file: Path, count: int) -> list[list[str]]:
    """Reads the fields of each line, between tabs."""
    with reading(file, UNPACK):
        lines = filter(str.strip, file.read_text("utf-8").splitlines())
        fields = [line.split("\t") for line in lines]
        if not fields or any(len(each) != count for each in fields):
            raise ValueError(f"expected lines of {count} fields between tabs")
    return fields


def _decode(file: Path) -> np.ndarray:
    """Decodes a picture, u8[64, 64, 3]."""
    with reading(file, UNPACK):
        return decode(file.read_bytes()).reshape(SIZE, SIZE, 3)
