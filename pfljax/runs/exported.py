"""Reads files of `pfljax export` with NumPy alone."""

from pathlib import Path
from typing import Any

from pfljax.core.requirements import require_a
from pfljax.runs import folder


def load_params(file: str | Path) -> dict[str, Any]:
    """The nested dict of arrays in a file of `export`, which the model's `apply` takes.

    Raises:
      ValueError: there is no such file, or its names are of another program.
      FolderError: the file is damaged, or is no .npz.
    """
    require_a("file", file, (str, Path), "a file of `pfljax export`")
    if not Path(file).is_file():
        raise ValueError(f"{file} is missing; give a file of `pfljax export`")
    wrong = f"{file} is not a file of `pfljax export`: an array of it contains others"
    params: dict[str, Any] = {}
    for name, array in folder.read_arrays(Path(file)).items():
        *outer, leaf = name.split("/")
        inner = params
        for part in outer:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise ValueError(wrong)
        if leaf in inner:
            raise ValueError(wrong)
        inner[leaf] = array
    return params
