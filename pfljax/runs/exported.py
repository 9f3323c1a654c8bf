"""Reads what `pfljax export` wrote, without JAX: NumPy alone is enough to use it."""

import zipfile
from pathlib import Path
from typing import Any

from pfljax.registry import require_a
from pfljax.runs import folder


def load_params(file: str | Path) -> dict[str, Any]:
    """The nested dict of arrays that `export` wrote: what the model's `apply` takes.

    Raises:
      ValueError: there is no such file, or it holds no arrays.
      FolderError: the file is damaged.
    """
    require_a("file", file, (str, Path), "a file of `pfljax export`")
    foreign = f"{file} is not a file of `pfljax export`, an .npz of named arrays"
    # An .npy or any other file; none at all has no arrays.
    if Path(file).is_file() and not zipfile.is_zipfile(file):
        raise ValueError(foreign)
    params: dict[str, Any] = {}
    arrays = folder.read_arrays(Path(file))
    if not arrays:
        raise ValueError(foreign)
    for name, array in arrays.items():
        *outer, leaf = name.split("/")
        inner = params
        for part in outer:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise ValueError(f"{foreign}: {part} is an array and holds {name}")
        if leaf in inner:
            raise ValueError(f"{foreign}: {name} is an array and holds others")
        inner[leaf] = array
    return params
