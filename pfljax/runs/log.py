"""The log of a run: one line for each round, and its checksum.

metrics.jsonl and the evaluations of clients are written before each checkpoint, so both
may be ahead of it. The checkpoint has the checksum of the lines before it, so that a
run resumes only from its own log.
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
    """Appends one JSON object per line, in one write."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(_text(lines))


def rewrite(path: Path, lines: Sequence[Line]) -> None:
    """Replaces the log by these lines."""
    files.write_text(path, _text(lines))


def read(
    path: Path, last_round: int, evaluated: Callable[[int], bool] = lambda _: True
) -> list[Line]:
    """The complete lines up to `last_round`.

    Lines of rounds that are not `evaluated` lose their evaluations.
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
