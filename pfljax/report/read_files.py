"""Reads the files of a run folder; a damaged one is an error that names it."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.runs import config, folder
from pfljax.runs.folder import DAMAGE

NEEDED = {
    "config.json": ("algorithm", "seed", "rounds"),
    "partition.json": ("num_classes", "sizes", "sha256"),
    "summary.json": ("rounds", "last"),
    "sweep.json": ("experiment", "over"),
}


def damaged(path: Path, why: Any) -> ValueError:
    """The error for a file that cannot be used."""
    return ValueError(
        f"{path} is missing or damaged ({why}); "
        "run the experiment again in a new folder"
    )


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`, with the keys that its kind of file needs."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except DAMAGE as error:
        raise damaged(path, error) from error
    if not isinstance(content, dict):
        raise damaged(path, f"expected a JSON object, got {type(content).__name__}")
    known = content
    if path.name == "config.json":
        known = read_settings(path, content)
    missing = [key for key in NEEDED.get(path.name, ()) if key not in known]
    if missing:
        raise damaged(path, f"it lacks {', '.join(missing)}")
    return content


def read_settings(path: Path, nested: Any) -> dict[str, Any]:
    """The settings in `path` by name, those too that this version no longer has.

    Raises:
        ValueError: they are not grouped, as an older version wrote them.
    """
    # A report shows what was run and runs nothing, so names are not checked.
    try:
        return config.by_name(nested)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_optional(path: Path) -> dict[str, Any]:
    """The JSON object in `path`, empty where there is no file."""
    return read_object(path) if path.is_file() else {}


def read_lines(path: Path) -> tuple[dict[str, Any], ...]:
    """The JSON objects of `path`, one a line."""
    lines = []
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            lines.append(json.loads(line))
    except DAMAGE as error:
        # Lines read so far are whole: the next one is at fault.
        raise damaged(path, f"line {len(lines) + 1}: {error}") from error
    have_rounds = [isinstance(line, dict) and "round" in line for line in lines]
    if not lines or not all(have_rounds):
        raise damaged(path, "expected a JSON object with a round on every line")
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


def read_seconds(path: Path) -> float | None:
    """Seconds of training: the sum over the calls in `path`; None without any."""
    if not path.is_file() or not path.stat().st_size:
        return None
    seconds = []
    for line in read_lines(path):
        if "seconds" in line:
            seconds.append(float(line["seconds"]))
    # Not 0, which would be shown as a time.
    if not seconds:
        return None
    return sum(seconds)


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
