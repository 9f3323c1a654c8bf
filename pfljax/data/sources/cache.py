"""Decoded data sets on disk, one uncompressed .npz each, written in one step."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.data.arrays import Arrays, from_arrays
from pfljax.data.sources import archives
from pfljax.data.sources.scratch import scratch

ABOUT = ("num_classes", "name", "source", "class_names")


def folder() -> Path:
    """The cache: the environment variable PFLJAX_DATA_DIR, or one under ~/.cache.

    Raises:
      ValueError: it is no UTF-8, which the writers of records want.
    """
    chosen = os.environ.get("PFLJAX_DATA_DIR")
    if chosen:
        _check_text(chosen)
    return Path(chosen) if chosen else Path.home() / ".cache" / "pfljax" / "data"


def _check_text(chosen: str) -> None:
    try:
        chosen.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"PFLJAX_DATA_DIR is {chosen!r}; expected a folder whose name is UTF-8"
        ) from None


def path(name: str) -> Path:
    """Where the decoded data set `name` is or would be."""
    # Names such as emnist/letters:3.0.0 are one file, not a folder.
    return folder() / f"{name.replace('/', '-').replace(':', '-')}.npz"


def write(arrays: Arrays) -> Path:
    """Stores `arrays` without their clients; returns the file."""
    about = {name: getattr(arrays, name) for name in ABOUT}
    columns = {
        "x": arrays.x,
        "y": arrays.y,
        "official": arrays.official,
        "about": np.array(json.dumps(about)),
    }
    return store(arrays.name, columns)


def store(name: str, columns: Mapping[str, Any]) -> Path:
    """Stores arrays by name; whoever reads meanwhile sees the old file or the new."""
    target = path(name)
    with scratch(target.parent) as folder:
        file = folder / target.name
        np.savez(file, **columns)
        # A rename within one folder is one step: nobody reads half a file.
        os.replace(file, target)
    return target


def read(name: str) -> Arrays:
    """The stored data set; ValueError where its file is damaged."""
    with opened(name, "x", "y", "official", "about") as stored:
        about = _about(name, str(stored["about"]))
        return from_arrays(
            stored["x"], stored["y"], official=stored["official"], **about
        )


@contextlib.contextmanager
def opened(name: str, *columns: str) -> Iterator[Mapping[str, np.ndarray]]:
    """The stored arrays by name; an error in the block becomes one of the file."""
    mend = f"remove it and run: pfljax prepare {name}"
    with archives.opened(path(name), columns, mend=mend) as stored:
        yield stored


def _about(name: str, text: str) -> dict[str, Any]:
    """What the file of `name` says of its arrays."""
    about = json.loads(text)
    if not isinstance(about, dict) or sorted(about) != sorted(ABOUT):
        raise ValueError(f"its 'about' is of another layout; expected {list(ABOUT)}")
    if about["name"] != name:
        raise ValueError(f"it holds the data set {about['name']!r}")
    return about
