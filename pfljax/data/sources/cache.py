"""Decoded data sets on disk, one uncompressed .npz each, written in one step."""

import contextlib
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.data.arrays import Arrays, from_arrays


def folder() -> Path:
    """The cache: the environment variable PFLJAX_DATA_DIR, or one under ~/.cache."""
    chosen = os.environ.get("PFLJAX_DATA_DIR")
    return Path(chosen) if chosen else Path.home() / ".cache" / "pfljax" / "data"


def path(name: str) -> Path:
    """Where the decoded data set `name` is or would be."""
    # Names such as emnist/letters:3.0.0 are one file, not a folder.
    return folder() / f"{name.replace('/', '-').replace(':', '-')}.npz"


def write(arrays: Arrays) -> Path:
    """Stores `arrays` without their clients; returns the file."""
    about = {
        "num_classes": arrays.num_classes,
        "name": arrays.name,
        "source": arrays.source,
        "class_names": arrays.class_names,
    }
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
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        file = Path(scratch) / target.name
        np.savez(file, **columns)
        # A rename within one folder is one step: nobody reads half a file.
        os.replace(file, target)
    return target


def read(name: str) -> Arrays:
    """The stored data set; ValueError where its file is damaged."""
    with opened(name) as stored:
        about = json.loads(str(stored["about"]))
        return from_arrays(
            stored["x"], stored["y"], official=stored["official"], **about
        )


@contextlib.contextmanager
def opened(name: str) -> Iterator[Mapping[str, np.ndarray]]:
    """The stored arrays by name; an error in the block becomes one of the file."""
    try:
        # Without pickles: a file from elsewhere cannot run code.
        with np.load(path(name), allow_pickle=False) as stored:
            yield stored
    except (zipfile.BadZipFile, KeyError, EOFError, OSError, ValueError) as error:
        raise ValueError(
            f"the cached data set {path(name)} cannot be read ({error}); remove it "
            f"and run: pfljax prepare {name}"
        ) from error
