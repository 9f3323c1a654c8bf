"""The file of each finished run of a sweep: its arrays, and whose they are."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.runs import folder
from pfljax.runs.folder import FolderError
from pfljax.runtime import files
from pfljax.sweep.results import Result

# The fields of Result that are dicts.
BY_NAME = ("metrics", "path", "size", "quantities")
IF_ANY = ("clock", "malicious")  # fields that only some runs have
POINT = "point"  # the array that says whose they are, in JSON


def write(path: Path, result: Result) -> None:
    """A finished run, whole or not at all; its digest is the name of the file."""
    files.make_folder(path.parent)
    arrays = {
        "round": result.round,
        "train_loss": result.train_loss,
    }
    # An .npz is flat: the fields that are dicts go by "field/name".
    for field in IF_ANY:
        array = getattr(result, field)
        if array is not None:
            arrays[field] = array
    for field in BY_NAME:
        for name, array in getattr(result, field).items():
            arrays[f"{field}/{name}"] = array
    point = {"digest": path.stem, "values": result.values}
    folder.write_arrays(path, {**arrays, POINT: np.array(json.dumps(point))})


def read(path: Path, values: dict[str, Any]) -> Result:
    """The finished run at the point `values`.

    Raises:
      FolderError: the file is damaged, another run's, or of another kind.
    """
    try:
        arrays = folder.read_arrays(path)
    except FolderError as error:
        raise FolderError(f"{error}; remove it, and the sweep runs it again") from None
    point = _parse(arrays.pop(POINT, None))
    # One file may stand in the place of another, and be whole.
    if point != {"digest": path.stem, "values": values}:
        words = ", ".join(f"{name}={value}" for name, value in values.items())
        raise FolderError(
            f"{path} is damaged, or not of the run with {words}; remove it, and the "
            "sweep runs it again"
        )
    fields: dict[str, Any] = {field: {} for field in BY_NAME}
    for key, array in arrays.items():
        # At the first slash alone: names of metrics have slashes too.
        field, _, name = key.partition("/")
        if field in IF_ANY:
            fields[field] = array
        elif field in fields:
            fields[field][name] = array
    return Result(
        values=values,
        round=arrays["round"],
        train_loss=arrays["train_loss"],
        **fields,
    )


def _parse(point: np.ndarray | None) -> Any:
    """What the file says of itself; None where that is no JSON."""
    try:
        return json.loads(str(point))
    except ValueError:
        return None
