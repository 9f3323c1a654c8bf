"""Files of run folders, damaged one at a time: right, repaired or refused, never wrong.

    python -m abuse.folders                      all, a table at the end
    python -m abuse.folders 'disk: clients/'     trials whose name has this text

A trial copies a folder that was left in the middle, or at its end, damages one file in
it, and gives the same command again. It must end with the bits of a whole run, or say
in one line which file is wrong.
"""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from abuse import answers, forked, jobs, surroundings
from abuse.answers import Answer

LIMIT = 60  # seconds of an answer
SHARE = 0.12  # of all damages of all files in a full run
# What a command may leave changed, and why: no number of a run hangs on it.
UNTOLD = {
    "timing.jsonl": "seconds, which no two runs share",
    "environment.json": "which versions and devices there were, for readers",
    "report.html": "a page for readers, drawn from the other files",
    "figures": "pictures for readers, drawn from the other files",
    "sweep.html": "as report.html",
    ".lock": "an empty file, which is locked",
}
Damage = Callable[[Path], object]
DAMAGES: dict[str, Damage] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "cut by a byte": lambda path: os.truncate(path, max(0, path.stat().st_size - 1)),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\n\0x"),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "junk": lambda path: path.write_bytes(bytes(range(1, 256)) * 4),
    "[]": lambda path: path.write_text("[]"),
    "{}": lambda path: path.write_text("{}"),
    "null": lambda path: path.write_text("null"),
    "3": lambda path: path.write_text("3"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link": lambda path: (
        path.rename(path.with_suffix(".kept")),
        path.symlink_to(path.with_suffix(".kept")),
    ),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "of another run": lambda path: None,  # see `_other`
}


class Base(NamedTuple):
    """Folders of a job: whole, and as far as the trials find it."""

    name: str
    job: jobs.Job
    whole: Path
    found: Path
    other: Path  # the same of another seed
    said: Path


# Where the trials find each job: at its end, or before its last checkpoint.
FOUND = {
    "device": "middle",
    "host": "middle",
    "disk": "middle",
    "report": "end",
    "sweep": "middle",
}


def main(wanted: list[str]) -> int:
    """Runs the trials, or those of these names; the exit code."""
    with surroundings.workplace("folders") as folder:
        forked.preload()
        rows = []
        for key in _bases(wanted):
            base = prepared(key, folder / key)
            counts: Counter[str] = Counter()
            for name, damage in _trials(base, wanted):
                counts[_trial(base, name, damage).kind] += 1
            row = {"folder": key, "trials": counts.total()}
            rows.append(row | {word: counts[word] for word in ("right", *WORDS)})
    print(surroundings.table(rows), flush=True)
    return int(any(row[kind] for row in rows for kind in answers.FAULTS))


def _bases(wanted: list[str]) -> list[str]:
    """The folders that the words name, or all where one of them names none."""
    named = [word.partition(":")[0] for word in wanted]
    every = not named or not set(named) <= set(FOUND)
    return [key for key in FOUND if every or key in named]


WORDS = tuple(kind for kind in answers.CLASSES if kind != "harmless")


def prepared(name: str, folder: Path) -> Base:
    """Runs the job, and another of another seed; leaves one in the middle."""
    job = jobs.JOBS[name]
    # Fewer rounds: each is a few files, and there are many trials.
    short = [word.replace("--rounds=24", "--rounds=9") for word in job.args]
    # An older checkpoint to fall back to, where the newest is damaged.
    job = job._replace(args=[*short, "--keep=3"])
    folder.mkdir(parents=True)
    base = Base(
        name, job, folder / "whole", folder / "found", folder / "other", folder / "said"
    )
    jobs.finish(job, base.whole)
    seed = ["--seed=5"] if "seed" not in job.args else ["--momentum=0.8"]
    jobs.finish(job._replace(args=[*job.args, *seed]), base.other)
    shutil.copytree(base.whole, base.found)
    if FOUND[name] == "middle":
        take_back(base.found, rounds=9)
    return base


def take_back(folder: Path, rounds: int) -> None:
    """The folder as it was before its last checkpoint, or before its last runs."""
    last = f"checkpoints/{rounds}", f"clients/round-{rounds}.npz"
    for name in ("summary.json", "report.html", *last):
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for path in sorted((folder / "runs").glob("*.npz"))[-2:]:
        path.unlink()


def _trials(base: Base, wanted: list[str]) -> Iterator[tuple[str, str]]:
    for name, file in files(base).items():
        for damage in DAMAGES:
            if damage == "of another run" and not (base.other / _part(file)).exists():
                continue
            trial = f"{base.name}: {name}: {damage}"
            draw = surroundings.chance("folders", trial)
            chosen = draw.random() < SHARE * surroundings.SCALE
            if wanted:
                chosen = any(word in trial for word in wanted)
            if chosen:
                yield name, damage


def files(base: Base) -> dict[str, Path]:
    """The files that the command reads, by names that each run of it gives again.

    Orbax draws the names of its `d/*`. Here they are numbers, the smallest file first.
    """
    named: dict[str, Path] = {}
    drawn: Counter[str] = Counter()
    paths = [path for path in base.found.rglob("*") if path.is_file()]
    for path in sorted(paths, key=_by_name_or_size):
        file = path.relative_to(base.found)
        name = str(file)
        if not read(base, name):
            continue
        if _is_drawn(path):
            folder = str(file.parent)
            name = f"{folder}/{drawn[folder]}"
            drawn[folder] += 1
        named[name] = file
    return named


def _is_drawn(path: Path) -> bool:
    return path.parent.name == "d"


def _by_name_or_size(path: Path) -> tuple[Path, int, bytes]:
    if _is_drawn(path):
        return path.parent, path.stat().st_size, path.read_bytes()
    return path, 0, b""


def read(base: Base, file: str) -> bool:
    """Whether the command has to look at this file of the folder."""
    top = Path(file).parts[0]
    # Of a finished run checkpoints are left to those who go on from them.
    unread = ("figures", "checkpoints") if FOUND[base.name] == "end" else ("figures",)
    return top not in unread


def _trial(base: Base, name: str, damage: str) -> Answer:
    file = str(files(base)[name])
    place = base.found.with_name("trial")
    shutil.copytree(base.found, place)
    if damage == "of another run":
        _other(base, place, Path(file))
    else:
        DAMAGES[damage](place / file)
    answer = outcome(base, place, file)
    if answer.kind not in ("right", "good"):
        text = f"{answer.kind}: [{base.name}: {name}: {damage}] {answer.line[:300]}"
        print(text, flush=True)
    shutil.rmtree(place)
    return answer


def _part(file: Path) -> Path:
    """What is another run's: the file, or the whole checkpoint that it is of."""
    return Path(*file.parts[:2]) if file.parts[0] == "checkpoints" else file


def _other(base: Base, place: Path, file: Path) -> None:
    """The same file of a run of another seed; of a checkpoint, the whole of it."""
    part = _part(file)
    given = base.other / part
    if given.is_dir():
        shutil.rmtree(place / part)
        shutil.copytree(given, place / part)
    else:
        shutil.copyfile(given, place / part)


def outcome(base: Base, place: Path, file: str) -> Answer:
    """What the same command makes of the folder with this damaged file."""
    call = forked.parsed(base.job.command(place), base.job.report)
    # As `pfljax` parses it: the folder must not matter before it is read.
    begun = forked.start(call, base.said)
    code = forked.wait(begun, LIMIT)
    said = begun.said()
    parts = Path(file).parts
    names = (parts[0], parts[-1], *parts[1:2], f"{place} ")
    if code != 0:
        return answers.classify(code, said, names, "")
    untold = UNTOLD.get(parts[0])
    difference = forked.holds(lambda: base.job.same(place, base.whole), base.said)
    if difference and not untold:
        return Answer("silent", difference)
    return Answer("right", untold or "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
