"""The log of a run: a line a round, metrics of each client, and their checksum.

metrics.jsonl is appended to and evaluations/ gets a file before each checkpoint, so
both may be ahead of it. The checkpoint keeps the checksum of what it has seen of them:
a run goes on from its own log or not at all.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.runs import config
from pfljax.runtime import documents, files

Line = dict[str, Any]
SETTINGS = "config.json"  # known by the settings that change a number
CHECKED = (  # by the summary of a finished run
    "metrics.jsonl",
    "per_client.npz",
    "partition.json",
    "partition.npz",
    SETTINGS,
)


def append(path: Path, lines: Sequence[Line]) -> None:
    """Appends one JSON object a line, in one write."""
    with files.told(path), open(path, "a", encoding="utf-8") as file:
        file.write(_text(lines))


def rewrite(path: Path, lines: Sequence[Line]) -> None:
    """Writes these lines and no others."""
    files.write_text(path, _text(lines))


def read(
    path: Path, last_round: int, evaluated: Callable[[int], bool] = lambda _: True
) -> list[Line]:
    """The lines up to `last_round` and up to one that is half written or damaged.

    Evaluations at rounds that are not `evaluated` are left out of theirs.
    """
    kept = []
    text = path.read_bytes().decode("utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        try:
            record = json.loads(line, parse_constant=_refuse)
            round_ = record["round"]
            if round_ > last_round:
                continue
        except (ValueError, KeyError, TypeError, RecursionError):
            break  # a line half written by a kill; nothing follows it
        if not evaluated(round_):  # it was the last of a run that now goes on
            record.pop("evaluations", None)
        kept.append(record)
    return kept


def checksum(
    lines: Sequence[Line],
    history: Mapping[str, Sequence[Any]],
    every: int,
    before: int = 0,
) -> int:
    """CRC-32 of these lines, and of `history`, arrays [C] by name and evaluation.

    `before` is that of the lines before them. Evaluations at rounds that `every` does
    not divide do not count: a run that goes on beyond such a round drops them.

    Raises:
      IndexError: `history` has fewer evaluations than the lines.
    """
    crc = before
    evaluation = 0
    for line in lines:
        counts = line["round"] % every == 0
        content = dict(line)
        # A run may go on beyond where it stopped.
        content.pop("stopped", None)
        if not counts:
            content.pop("evaluations", None)
        crc = zlib.crc32(_text([content]).encode(), crc)
        if "evaluations" not in line:
            continue
        for name in sorted(history):
            values = np.ascontiguousarray(history[name][evaluation])
            if counts:
                crc = zlib.crc32(values.tobytes(), crc)
        evaluation += 1
    return crc


def of_files(folder: Path) -> dict[str, int | None]:
    """CRC-32 of each file of `CHECKED`; None for one that is not there."""
    return {name: _of_file(folder / name) for name in CHECKED}


def _of_file(file: Path) -> int | None:
    if not file.is_file():
        return None
    if file.name != SETTINGS:
        return _crc_of_bytes(file)
    # As they are written: a later version, which has more of them, finds the same.
    settings = config.by_name(documents.read(file))
    kept = {name: settings[name] for name in settings if name not in config.CHANGEABLE}
    return documents.crc(kept)


def _crc_of_bytes(file: Path) -> int:
    # Through one buffer: to read a large file whole takes as long as to write it.
    crc = 0
    buffer = memoryview(bytearray(2**20))
    with open(file, "rb", buffering=0) as content:
        while count := content.readinto(buffer):
            crc = zlib.crc32(buffer[:count], crc)
    return crc


def changed(folder: Path, summary: Mapping[str, Any]) -> str | None:
    """What of a finished run is no longer what was written: one line, or None."""
    written = summary.get("checksums")
    if not isinstance(written, Mapping):  # of an older version
        return None
    for name in CHECKED:
        # An older version, or a federation made by hand, may have none of this file.
        if written.get(name) is None:
            continue
        crc = _of_file(folder / name)
        if crc is None:
            return f"{folder / name} is missing"
        if crc != written[name] and name == SETTINGS:
            return f"{folder / name} and summary.json beside it are of different runs"
        if crc != written[name]:
            return f"{folder / name} is damaged or was changed after the run"
    return None


def _text(lines: Sequence[Line]) -> str:
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)


def _refuse(constant: str) -> Any:
    # Python reads NaN, which is no JSON and which we never write.
    raise ValueError(f"{constant} is not JSON")
