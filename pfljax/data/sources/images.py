"""Folders of images: CLIENT/CLASS/*.png, or SPLIT/CLIENT/CLASS/*.png.

Images are decoded once, into the cache of data sets.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.core.factories import validate
from pfljax.core.ranges import AtLeastOne
from pfljax.data.arrays import OFFICIAL_NAMES, Arrays, from_arrays
from pfljax.data.files import read_npz, reading
from pfljax.data.sources import cache

LAYOUT = (
    "expected CLIENT/CLASS/*.png or *.jpg, or SPLIT/CLIENT/CLASS/*.png, where SPLIT is "
    f"{', '.join(OFFICIAL_NAMES)}"
)
IMAGE = "expected an image of 8 bits a channel"
SUFFIXES = (".png", ".jpg", ".jpeg")


@validate
def images(*, path: str, size: AtLeastOne | None = None) -> Arrays:
    """Loads CLIENT/CLASS/*.png or .jpg, u8[N, height, width, channels].

    There are 3 channels, or 1 if all images are grey.
    The outer folders are natural clients, such as users or domains. Names of clients
    and classes are those of the folders.

    Args:
      path: the folder.
      size: images are resized to `size` x `size` pixels; None if all have one size.

    Raises:
      ValueError: the folder has another layout, or an image cannot be read.
    """
    root = Path(path)
    if not root.is_dir():
        raise ValueError(f"no folder {path!r}; give path= a folder of images")
    files = [file for file in sorted(root.rglob("*")) if _is_image(file, root)]
    parts = [file.relative_to(root).parts for file in files]
    are_split = [len(each) == 4 and each[0] in OFFICIAL_NAMES for each in parts]
    splits = any(are_split)
    are_known = are_split if splits else [len(each) == 3 for each in parts]
    if not all(are_known) or not files:
        odd = files[are_known.index(False)] if files else root
        raise ValueError(f"{odd} is in no known layout of images; {LAYOUT}")
    classes = sorted({each[-2] for each in parts})
    number = {name: index for index, name in enumerate(classes)}
    official = [OFFICIAL_NAMES.index(each[0]) for each in parts] if splits else None
    return from_arrays(
        _decode_once(root, files, size),
        np.array([number[each[-2]] for each in parts]),
        client=[each[-3] for each in parts],
        official=official,
        num_classes=len(classes),
        class_names=classes,
        name=root.name,
    )


def _is_image(file: Path, root: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(root).parts)
    return file.suffix.lower() in SUFFIXES and not hidden and file.is_file()


def _decode_once(root: Path, files: list[Path], size: int | None) -> np.ndarray:
    """The images of the files, from the cache if they were decoded before."""
    states = [(str(file.relative_to(root)), *_state(file)) for file in files]
    digest = hashlib.sha256(json.dumps([states, size]).encode()).hexdigest()[:16]
    stored = cache.path(f"images-{root.name}-{digest}")
    if not stored.exists():
        x = decode({str(file): file for file in files}, size)
        with cache.replace(stored) as file:
            np.savez(file, x=x)
        return x
    with reading(stored, "remove it"):
        return read_npz(stored, ("x",))["x"]


def _state(file: Path) -> tuple[int, int]:
    """What changes when a file does."""
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def decode(files: Mapping[str, Any], size: int | None) -> np.ndarray:
    """Decodes images, u8[N, height, width, channels].

    They are paths or open files, by the names that errors have.
    """
    from PIL import Image

    modes, shapes = set(), {}
    for name, file in files.items():
        with reading(name, IMAGE), Image.open(file) as image:
            if image.mode[0] in "IF":
                raise ValueError(f"it has the mode {image.mode}, of more than 8 bits")
            modes.add(image.mode)
            shapes.setdefault(image.size, name)
    if size is None and len(shapes) > 1:
        (width, height), (other_width, other_height), *_ = shapes
        raise ValueError(
            f"{shapes[width, height]} has {width} x {height} pixels, and "
            f"{shapes[other_width, other_height]} {other_width} x {other_height}; give "
            "size=32, say, to resize all"
        )
    width, height = (size, size) if size else next(iter(shapes))
    mode = "L" if modes <= {"L", "1"} else "RGB"
    x = np.empty((len(files), height, width, len(mode)), np.uint8)
    for (name, file), target in zip(files.items(), x, strict=True):
        with reading(name, IMAGE), Image.open(file) as image:
            image = image.convert(mode)
            if image.size != (width, height):
                image = image.resize((width, height), Image.Resampling.BILINEAR)
            target[:] = np.asarray(image).reshape(target.shape)
    return x
