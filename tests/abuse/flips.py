"""Bit flips in files of run folders: right, repaired or refused, never wrong.

    python -m abuse.flips             all, a table at the end
    python -m abuse.flips disk:7      trial 7 of one folder

A trial turns one bit, or a few, of one file of a folder that was left in the middle or
at its end, and gives the same command again. `folders.UNTOLD` names the files that may
be changed without a word, and why.
"""

import random
import shutil
import sys
from collections import Counter
from pathlib import Path

from abuse import answers, folders, forked, surroundings

TRIALS = {"device": 30, "host": 30, "disk": 30, "report": 20, "sweep": 20}
MOST = 3  # bits of a trial


def main(wanted: list[str]) -> int:
    """Runs the folders, or single trials; the exit code."""
    with surroundings.workplace("flips") as folder:
        forked.preload()
        rows = []
        for word in wanted or list(TRIALS):
            name, _, number = word.partition(":")
            base = folders.prepared(name, folder / name)
            count = surroundings.scaled(TRIALS[name])
            numbers = [int(number)] if number else range(count)
            counts = Counter(_trial(base, n) for n in numbers)
            row = {"folder": name, "trials": counts.total()}
            row |= {kind: counts[kind] for kind in ("right", *folders.WORDS)}
            rows.append(row)
    print(surroundings.table(rows), flush=True)
    return int(any(row[kind] for row in rows for kind in answers.FAULTS))


def _trial(base: folders.Base, number: int) -> str:
    draw = surroundings.chance("flips", base.name, number)
    place = base.found.with_name("trial")
    shutil.copytree(base.found, place)
    files = [path for path in sorted(place.rglob("*")) if _counts(base, place, path)]
    path = draw.choice(files)
    where = flip(path, draw)
    file = str(path.relative_to(place))
    answer = folders.outcome(base, place, file)
    shutil.rmtree(place)
    if answer.kind not in ("right", "good"):
        text = (
            f"{answer.kind}: [{base.name}:{number} {file} {where}] {answer.line[:300]}"
        )
        print(text, flush=True)
    return answer.kind


def _counts(base: folders.Base, place: Path, path: Path) -> bool:
    """Whether a flip of this file must be noticed, or do no harm."""
    # An empty file has no bit.
    if not path.is_file() or not path.stat().st_size:
        return False
    file = path.relative_to(place)
    return file.parts[0] not in folders.UNTOLD and folders.read(base, str(file))


def flip(path: Path, draw: random.Random) -> list[tuple[int, int]]:
    """Turns up to `MOST` bits of a file: their (byte, bit)."""
    data = bytearray(path.read_bytes())
    where = []
    for _ in range(draw.randint(1, MOST)):
        byte = draw.randrange(len(data))
        bit = draw.randrange(8)
        data[byte] ^= 1 << bit
        where.append((byte, bit))
    path.write_bytes(bytes(data))
    return where


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
