"""Files of `pfljax export`, .npz or .safetensors, without JAX."""

import importlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.core.requirements import require_a
from pfljax.runs import folder
from pfljax.runtime import files
from pfljax.runtime.documents import damage_error

SAFE = ".safetensors"


def load_params(file: str | Path) -> dict[str, Any]:
    """The nested dict of arrays in a file of `export`, which the model's `apply` takes.

    Raises:
      ValueError: there is no such file, or its names are of another program.
      FileError: the file is damaged, or of another format.
    """
    require_a("file", file, (str, Path), "a file of `pfljax export`")
    if not Path(file).is_file():
        raise ValueError(f"{file} is missing; give a file of `pfljax export`")
    wrong = f"{file} is not a file of `pfljax export`: an array of it contains others"
    params: dict[str, Any] = {}
    for name, array in read_arrays(Path(file)).items():
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


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    """The named arrays of a file.

    Raises:
      ValueError: it is of another format, or needs safetensors, which is not
        installed.
      FileError: the file is damaged.
    """
    if file.suffix != SAFE:
        if not zipfile.is_zipfile(file):
            raise ValueError(
                f"{file} is cut, or is no file of `pfljax export`; export the model "
                "again"
            )
        return folder.read_arrays(file)
    load = import_safetensors("numpy").load
    try:
        return load(file.read_bytes())
    except import_safetensors().SafetensorError as error:
        raise damage_error(file, error) from None


def write_arrays(file: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes named arrays in the format of the file's name, completely or not at all.

    Raises:
      ValueError: it needs safetensors, which is not installed.
    """
    if file.suffix != SAFE:
        folder.write_arrays(file, arrays)
        return
    # It writes the memory of an array, whatever its order of axes.
    in_order = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    content = import_safetensors("numpy").save(in_order)
    with files.whole(file) as part:
        part.write_bytes(content)


def import_safetensors(module: str = "") -> Any:
    """The package, or a module of it.

    Raises:
      ValueError: it is not installed.
    """
    try:
        return importlib.import_module(f"safetensors.{module}".rstrip("."))
    except ImportError:
        raise ValueError(
            f"a {SAFE} file needs safetensors; run pip install 'pfljax[safetensors]'"
        ) from None
