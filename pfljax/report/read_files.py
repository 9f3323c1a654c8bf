"""Reads the files of a run folder; a damaged one is an error that names it."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax.runs import config, folder, forms
from pfljax.runtime import documents
from pfljax.runtime.documents import damaged
from pfljax.runtime.files import DAMAGE, FileError


class Timing(NamedTuple):
    """What training took; None where it was not recorded."""

    seconds: float | None = None  # wall time
    peak_bytes: int | None = None  # the most memory held since the process began
    peak_of: str = ""  # of the fullest "device", or of the "process"


def read_settings(path: Path, nested: Any) -> dict[str, Any]:
    """The settings in `path` by name, those too that this version no longer has.

    Those that the version of the run did not have yet are at their defaults.

    Raises:
        FileError: they are not grouped, as an older version wrote them.
    """
    # A report shows what was run and runs nothing, so names are not checked.
    try:
        return config.tabulated(nested)
    except ValueError as error:
        raise FileError(f"{path}: {error}") from None


def read_optional(path: Path) -> dict[str, Any]:
    """The JSON object in `path`, empty where there is no file."""
    return folder.read_json(path) if path.is_file() else {}


def read_lines(path: Path) -> tuple[dict[str, Any], ...]:
    """The JSON objects of `path`, one a line."""
    lines = []
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            lines.append(json.loads(line))
    except DAMAGE as error:
        # Lines read so far are whole: the next one is at fault.
        raise damaged(path, f"line {len(lines) + 1}: {error}") from error
    if not lines:
        raise damaged(path, "expected a JSON object with a round on every line")
    for number, line in enumerate(lines, start=1):
        wrong = documents.misfit(line, forms.LINE, f"line {number}")
        if wrong:
            raise damaged(path, wrong)
    return tuple(lines)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of the .npz file `path`."""
    try:
        arrays = folder.read_arrays(path)
    except folder.FolderError as error:
        raise damaged(path, error) from error
    if "round" not in arrays:
        raise damaged(path, "it lacks the array 'round'")
    return arrays


def read_timing(path: Path) -> Timing:
    """What the calls in `path` took in all, and held at the most."""
    if not path.is_file() or not path.stat().st_size:
        return Timing()
    lines = read_lines(path)
    seconds = [line["seconds"] for line in lines if "seconds" in line]
    peaks = [line for line in lines if "peak_bytes" in line]
    highest = max(peaks, key=lambda line: line["peak_bytes"], default={})
    return Timing(
        # Not 0, which would be shown as a time.
        seconds=sum(seconds) if seconds else None,
        peak_bytes=highest.get("peak_bytes"),
        peak_of=highest.get("peak_of", ""),
    )


def read_png(path: Path) -> tuple[bytes, int]:
    """(bytes, width in pixels) of an image; width 0 where it is no whole PNG."""
    png = path.read_bytes()
    begins = png.startswith(b"\x89PNG\r\n\x1a\n")
    ends = png.endswith(b"IEND\xaeB`\x82")
    # A picture that is being written has no end yet.
    if not begins or not ends:
        return png, 0
    # The header chunk is the first one, and the width its first field.
    width = int.from_bytes(png[16:20], "big")
    return png, width
