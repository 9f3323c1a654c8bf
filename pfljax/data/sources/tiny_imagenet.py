"""Tiny-ImageNet from its official folder, decoded into one array.

Le and Yang 2015, http://cs231n.stanford.edu/tiny-imagenet-200.zip. Of the folder these
are read: wnids.txt, words.txt, train/WNID/images/*.JPEG, val/val_annotations.txt and
val/images/*.JPEG. The official test folder has no labels.
"""

from pathlib import Path

import numpy as np

from pfljax.data.arrays import OFFICIAL_TEST, OFFICIAL_TRAIN, Arrays, from_arrays
from pfljax.data.edge import reading
from pfljax.data.sources.raw_archives import decode, require_file

NAME = "tiny_imagenet"
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
        FileNotFoundError: names the file or folder that was expected.
        ValueError: a picture or a line is not as in the official folder.
    """
    folder = raw_dir / FOLDER
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {FOLDER} in {raw_dir}")
    wnids = sorted(wnid for (wnid,) in _fields(folder / "wnids.txt", 1))
    words = dict(_fields(folder / "words.txt", 2))
    train = _train(folder / "train", wnids)
    test = _val(folder / "val", wnids)
    pictures = train + test
    x = np.empty((len(pictures), SIZE, SIZE, 3), np.uint8)
    for pixels, (file, _) in zip(x, pictures, strict=True):
        pixels[:] = _decode(require_file(file))
    return from_arrays(
        x,
        np.array([label for _, label in pictures]),
        official=[OFFICIAL_TRAIN] * len(train) + [OFFICIAL_TEST] * len(test),
        num_classes=len(wnids),
        name=NAME,
        source="Y. Le, X. Yang 2015, Stanford CS231n, of ImageNet; no licence stated",
        class_names=[words.get(wnid, wnid) for wnid in wnids],
    )


def _train(folder: Path, wnids: list[str]) -> Pictures:
    pictures = []
    for label, wnid in enumerate(wnids):
        images = folder / wnid / "images"
        files = sorted(images.glob("*.JPEG"))
        if not files:
            raise FileNotFoundError(f"no *.JPEG in {images}")
        pictures += [(file, label) for file in files]
    return pictures


def _val(folder: Path, wnids: list[str]) -> Pictures:
    annotations = folder / "val_annotations.txt"
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    pictures = []
    for name, wnid, *_ in _fields(annotations, 6):
        if wnid not in label_of:
            raise ValueError(f"{annotations} names {wnid!r}, which is not in wnids.txt")
        pictures.append((folder / "images" / name, label_of[wnid]))
    return pictures


def _fields(file: Path, count: int) -> list[list[str]]:
    """Reads the fields of each line, between tabs."""
    with reading(require_file(file), UNPACK):
        lines = filter(str.strip, file.read_text("utf-8").splitlines())
        fields = [line.split("\t") for line in lines]
        if not fields or any(len(each) != count for each in fields):
            raise ValueError(f"expected lines of {count} fields between tabs")
    return fields


def _decode(file: Path) -> np.ndarray:
    """Decodes a picture, u8[64, 64, 3]."""
    with reading(file, UNPACK):
        pixels = decode(file.read_bytes())
        if pixels.shape != (SIZE, SIZE, 3):
            height, width, _ = pixels.shape
            raise ValueError(
                f"{width} x {height} pixels; expected {SIZE} x {SIZE}, as in the "
                "official archive"
            )
    return pixels
