"""Bit flips in every file of run folders: right, repaired or refused, never wrong.

    python -m abuse.flips                       all, a table at the end
    python -m abuse.flips disk                  one folder
    python -m abuse.flips disk:clients/slots    its trials whose name has this text

A trial turns one bit of one file of a folder that was left in the middle or at its end,
and gives the same command again. It is named by the folder, the file, as
`folders.files` names it, and a number. The bit follows from the name and the seed.
`folders.UNTOLD` names the files that may be changed without a word, and why.
"""

import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from abuse import answers, folders, forked, surroundings

BITS = {"device": 1, "host": 1, "disk": 1, "report": 3, "sweep": 2}  # of each file


def main(wanted: list[str]) -> int:
    """Runs the folders, or trials of these names; the exit code."""
    with surroundings.workplace("flips") as folder:
        forked.preload()
        rows = []
        for word in wanted or list(BITS):
            key, _, text = word.partition(":")
            base = folders.prepared(key, folder / key)
            counts = Counter(_trial(base, *trial) for trial in _trials(base, text))
            row = {"folder": key, "trials": counts.total()}
            row |= {kind: counts[kind] for kind in ("right", *folders.WORDS)}
            rows.append(row)
            shutil.rmtree(folder / key)
    print(surroundings.table(rows), flush=True)
    return int(any(row[kind] for row in rows for kind in answers.FAULTS))


def _trials(base: folders.Base, text: str) -> Iterator[tuple[str, int]]:
    """(name of the file, number) of each bit; of a scaled run a part of them."""
    for name, file in folders.files(base).items():
        # An empty file has no bit.
        if name in folders.UNTOLD or not (base.found / file).stat().st_size:
            continue
        for number in range(BITS[base.name]):
            draw = surroundings.chance("flips", "share", base.name, name, number)
            chosen = draw.random() < surroundings.SCALE
            if text in f"{name}:{number}" if text else chosen:
                yield name, number


def _trial(base: folders.Base, name: str, number: int) -> str:
    place = base.found.with_name("trial")
    shutil.copytree(base.found, place)
    file = folders.files(base)[name]
    draw = surroundings.chance("flips", base.name, name, number)
    where = flip(place / file, draw.random(), draw.randrange(8))
    answer = folders.outcome(base, place, str(file))
    shutil.rmtree(place)
    if answer.kind not in ("right", "good"):
        text = f"{base.name}:{name}:{number}, byte {where}"
        print(f"{answer.kind}: [{text}] {answer.line[:300]}", flush=True)
    return answer.kind


def flip(path: Path, share: float, bit: int) -> int:
    """Turns one bit of a file, at this share of its length: the byte it is in."""
    content = bytearray(path.read_bytes())
    byte = int(share * len(content))
    content[byte] ^= 1 << bit
    path.write_bytes(bytes(content))
    return byte


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
