"""The log of a run: a line a round, metrics of each client, and their checksum.

metrics.jsonl and the evaluations of clients are written before each checkpoint, so both
may be ahead of it. The checkpoint keeps the checksum of what it has seen of them: a run
resumes from its own log or not at all.
"""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.runtime import files

Line = dict[str, Any]
NEWEST = "after the newest broadcast"  # when most models are evaluated


def append(path: Path, lines: Sequence[Line]) -> None:
    """Appends one JSON object a line, in one write."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(_text(lines))


def rewrite(path: Path, lines: Sequence[Line]) -> None:
    """Writes these lines and no others."""
    files.write_text(path, _text(lines))


def read(
    path: Path, last_round: int, evaluated: Callable[[int], bool] = lambda _: True
) -> list[Line]:
    """The lines up to `last_round` and up to one that is half written.

    Evaluations at rounds that are not `evaluated` are left out of theirs.
    """
    lines = []
    text = path.read_bytes().decode("utf-8", errors="replace") if path.exists() else ""
    for written in text.splitlines():
        try:
            line = json.loads(written)
        except ValueError:
            break  # half written by a kill; nothing follows it
        if line["round"] > last_round:
            break
        if not evaluated(line["round"]):  # it was the last of a run that now goes on
            line.pop("evaluations", None)
        lines.append(line)
    return lines


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


def _text(lines: Sequence[Line]) -> str:
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
