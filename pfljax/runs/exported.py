"""Reads what `pfljax export` wrote, without JAX: NumPy alone is enough to use it."""

from pathlib import Path
from typing import Any

from pfljax.runs import folder


def load_params(file: str | Path) -> dict[str, Any]:
    """The nested dict of arrays that `export` wrote: what the model's `apply` takes.

    Raises:
      ValueError: there is no such file, or it holds no arrays.
      FolderError: the file is damaged.
    """
    params: dict[str, Any] = {}
    arrays = folder.read_arrays(Path(file))
    if not arrays:
        raise ValueError(f"{file} is not a file of `pfljax export`")
    for name, array in arrays.items():
        *outer, leaf = name.split("/")
        inner = params
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[leaf] = array
    return params
