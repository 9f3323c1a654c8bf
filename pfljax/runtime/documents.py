"""JSON objects in files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pfljax.runtime import files
from pfljax.runtime.files import FileError


def write(path: Path, content: Mapping[str, Any], lasting: bool = False) -> None:
    """Writes the object, whole or not at all; see `files.whole`."""
    text = json.dumps(content, indent=1, allow_nan=False)
    files.write_text(path, text + "\n", lasting)


def read(path: Path) -> dict[str, Any]:
    """The object in `path`.

    Raises:
      FileError: there is no file, or it holds no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damage_error(path, error) from None
    if not isinstance(content, dict):
        raise damage_error(path, "expected a JSON object")
    return content


def damage_error(path: Path, why: object) -> FileError:
    """The error for a file of a run that cannot be used."""
    return FileError(
        f"{path} is missing or damaged ({why}); restore it, or run again with another "
        "--out"
    )
