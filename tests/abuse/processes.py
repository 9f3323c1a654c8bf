"""Two processes, one lost at a random moment: the other ends in time, and all goes on.

    python -m abuse.processes        all, a table at the end
    python -m abuse.processes 7      trial 7

In a trial two processes run one experiment; one of them is killed after a random while,
in which they may still be meeting. The other must end by itself within two minutes,
with a line of pfljax. Then both are begun again, and must end with the bits of two that
nobody disturbed.
"""

import os
import shutil
import signal
import socket
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from abuse import forked, jobs, surroundings

TRIALS = 20
PROMISED = 120  # seconds until the process that is left ends
LIMIT = 300
JOB = jobs.Job(jobs.run(24, 3, "--cohort=4"), jobs.same_run)


class Whole(NamedTuple):
    """A run by two processes that nobody disturbed."""

    folder: Path
    seconds: float


def main(wanted: list[str]) -> int:
    """Runs the trials, or those of these numbers; the exit code."""
    numbers = [int(word) for word in wanted] or range(surroundings.scaled(TRIALS))
    with surroundings.workplace("processes") as folder:
        forked.preload()
        _finish(folder / "whole", folder / "filled")  # fills the compilation cache
        shutil.rmtree(folder / "whole")
        started = time.monotonic()
        _finish(folder / "whole", folder / "said")
        whole = Whole(folder / "whole", time.monotonic() - started)
        counts = Counter(_trial(number, folder, whole) for number in numbers)
    row: dict = {"lost": "one of two", "trials": counts.total()}
    words = ("same bits", "too early", "unclear", "late", "refused", "wrong")
    row |= {word: counts[word] for word in words}
    print(surroundings.table([row]), flush=True)
    return int(any(row[word] for word in words[2:]))


def _pair(folder: Path, said: Path) -> list[forked.Started]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = [f"--coordinator=127.0.0.1:{port}", "--processes=2"]
    pair = []
    for number in range(2):
        words = [*JOB.command(folder), *meeting, f"--process={number}"]
        call = forked.parsed(words, report=False)
        pair.append(forked.start(call, said / str(number)))
    return pair


def _finish(folder: Path, said: Path) -> None:
    """Runs the pair to its end; a RuntimeError says what it answers else."""
    pair = _pair(folder, said)
    codes = [forked.wait(process, LIMIT) for process in pair]
    if codes != [0, 0]:
        lines = " | ".join(process.said()[-2000:] for process in pair)
        raise RuntimeError(f"ended with {codes}: {lines}")


def _trial(number: int, folder: Path, whole: Whole) -> str:
    draw = surroundings.chance("processes", number)
    place = folder / str(number)
    lost = draw.randrange(2)
    delay = draw.random() * whole.seconds
    pair = _pair(place / "run", place / "lost")
    time.sleep(delay)
    alive = forked.alive(pair[lost])
    if alive:
        os.kill(pair[lost].pid, signal.SIGKILL)
    forked.wait(pair[lost], LIMIT)
    killed = time.monotonic()
    code = forked.wait(pair[1 - lost], PROMISED)
    took = time.monotonic() - killed
    word = _judged(code, pair[1 - lost].said()) if alive else "too early"
    line = (
        f"process {lost} lost after {delay:.1f} s, the other ended {took:.0f} s later"
    )
    try:
        _finish(place / "run", place / "again")
    except RuntimeError as error:
        word = "refused"
        line += f"; {error}"
    else:
        check = place / "check"
        wrong = forked.holds(lambda: JOB.same(place / "run", whole.folder), check)
        word = "wrong" if wrong else word
        line += f"; {wrong}" if wrong else ""
    said = pair[1 - lost].said().strip()
    print(f"{number} {word}: {line}; exit code {code}: {said[-300:]!r}", flush=True)
    shutil.rmtree(place)
    return word


def _judged(code: int | None, said: str) -> str:
    """The class of the answer of the process that is left."""
    if code is None:
        return "late"
    # The other may have been lost when all was done.
    if code == 0:
        return "same bits"
    last = (said.strip().splitlines() or [""])[-1]
    told = last.startswith("pfljax: ") and "Traceback" not in said
    return "same bits" if told else "unclear"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
