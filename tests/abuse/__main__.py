"""All programs of abuse on two cores, about 30 minutes, and their tables at the end.

    make abuse
    ABUSE_SEED=7 ABUSE_SCALE=0.1 make abuse    other choices, a tenth of the trials
    PYTHONPATH=tests .venv/bin/python -m abuse.kills save:17    one trial of a program

Each program says in its docstring how one of its trials is repeated.
"""

import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from abuse import surroundings

# The longest first: two run at a time.
PROGRAMS = (
    ("kills", "begin", "rounds", "save", "evaluation"),
    ("inputs",),
    ("kills", "host", "disk", "extension", "sweep", "import", "report", "command"),
    ("flips",),
    ("processes",),
    ("folders",),
    ("limits",),
)
AT_ONCE = 2


def main() -> int:
    """Runs the programs; 1 if one of them found a fault."""
    started = time.monotonic()
    failed = []
    with tempfile.TemporaryDirectory(prefix="pfljax-abuse-") as folder:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            jobs = {
                program: pool.submit(_run, program, Path(folder) / str(number))
                for number, program in enumerate(PROGRAMS)
            }
        for program, job in jobs.items():
            code, tables = job.result()
            if code:
                failed.append(program[0])
            print(f"\n== {' '.join(program)}\n{tables}", flush=True)
    minutes = (time.monotonic() - started) / 60
    verdict = f"faults in {', '.join(failed)}" if failed else "no fault"
    print(f"{verdict}; {minutes:.0f} minutes; ABUSE_SEED={surroundings.SEED}")
    return int(bool(failed))


def _run(program: tuple[str, ...], folder: Path) -> tuple[int, str]:
    """The exit code of a program and its tables, printed with all it said before."""
    folder.mkdir()
    process = subprocess.run(
        [sys.executable, "-m", f"abuse.{program[0]}", *program[1:]],
        env=os.environ | {"ABUSE_FOLDER": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(f"{' '.join(program)}: {process.returncode}\n{process.stdout}", flush=True)
    _, _, tables = process.stdout.rpartition(surroundings.SPENT)
    return process.returncode, tables.strip()


if __name__ == "__main__":
    sys.exit(main())
