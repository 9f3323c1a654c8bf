"""Reads the files of a run folder; a damaged one is an error that names it."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.report.config import by_name
from pfljax.runs import folder
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
        _check_grouped(path, content)
        known = by_name(content)
    missing = [key for key in NEEDED.get(path.name, ()) if key not in known]
    if missing:
        raise damaged(path, f"it lacks {', '.join(missing)}")
    return content


def _check_grouped(path: Path, config: dict[str, Any]) -> None:
    """Refuses settings that lie side by side, as they did before there were groups."""
    if "algorithm" in config:
        raise ValueError(
            f"{path}: its settings are not grouped, so an older pfljax wrote it; "
            "report it with that version, or run it again in a new folder"
        )


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
        raise damaged(path, f"line {len(lines) + 1}: {error}") from error
    if not lines or not all(isinstance(x, dict) and "round" in x for x in lines):
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
    seconds = [float(x["seconds"]) for x in read_lines(path) if "seconds" in x]
    return sum(seconds) if seconds else None


def read_png(path: Path) -> tuple[bytes, int]:
    """(bytes, width in pixels) of an image; width 0 where it is no whole PNG."""
    png = path.read_bytes()
    whole = png.startswith(b"\x89PNG\r\n\x1a\n") and png.endswith(b"IEND\xaeB`\x82")
    return png, int.from_bytes(png[16:20], "big") if whole else 0
