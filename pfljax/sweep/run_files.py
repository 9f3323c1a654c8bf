"""The files of the finished runs of a sweep."""

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
POINT = "point"  # the array with the digest and the values of the run, in JSON


def write(path: Path, result: Result) -> None:
    """Writes a finished run atomically; the name of the file is its digest."""
    files.make_folder(path.parent)
    arrays = {
        "round": result.round,
        "train_loss": result.train_loss,
    }
    # An .npz is flat: arrays of fields that are dicts are named "field/name".
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
      FolderError: the file is damaged, or of another run.
    """
    try:
        arrays = folder.read_arrays(path)
    except FolderError as error:
        raise FolderError(f"{error}; remove it, and the sweep runs it again") from None
    point = _parse(arrays.pop(POINT, None))
    # A file that was renamed is not damaged, but holds another run.
    if point != {"digest": path.stem, "values": values}:
        words = ", ".join(f"{name}={value}" for name, value in values.items())
        raise FolderError(
            f"{path} is damaged, or not of the run with {words}; remove it, and the "
            "sweep runs it again"
        )
    fields: dict[str, Any] = {field: {} for field in BY_NAME}
    for key, array in arrays.items():
        # Names of metrics have slashes too.
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
    """The digest and the values in the file; None if they are not JSON."""
    try:
        return json.loads(str(point))
    except ValueError:
        return None
