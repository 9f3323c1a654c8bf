"""A process that runs for long holds no more files, threads and memory for it."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import pfljax
import tiny
from pfljax.core.types import RunState
from pfljax.runs import checkpoint
from pfljax.runtime import programs

SCATTER = 30  # files and threads that come and go with each save


# A run that saves after every round, below a limit of open files.
ROUNDS_WITH_CHECKPOINTS = """
import os, resource, sys
from pathlib import Path
import pfljax
from pfljax.simulate import loop

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
save_population = loop.save_population

def counted(*args):
    save_population(*args)
    progress = args[-1]
    if progress.done % 15 == 0:
        files = len(os.listdir("/proc/self/fd"))
        threads = len(os.listdir("/proc/self/task"))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        print(files, threads, pages * os.sysconf("SC_PAGE_SIZE"), flush=True)

loop.save_population = counted
experiment = pfljax.Experiment(
    model="mlp:hidden=(8,)", clients=6, cohort=3, rounds=150, eval_every=1, epochs=1,
    batch_size=20, out=sys.argv[1],
)
pfljax.run(experiment, quiet=True, report=False)
"""
# Each compiles another program; those of the last two stay.
MANY_RUNS = """
import os, sys
from pathlib import Path
from pfljax.runtime import programs
programs.SETTINGS = 2
import pfljax

methods = "fedavg", "fedprox", "fedper", "ditto", "scaffold"
for number in range(12):
    experiment = pfljax.Experiment(
        algorithm=methods[number % 5], model=f"mlp:hidden=({4 + number},)", clients=12,
        cohort=2 + number // 5, rounds=2, eval_every=2, epochs=None,
        steps=1 + number % 5, optimizer=("sgd", "adam")[number % 2], batch_size=20,
        lr=0.01, out=f"{sys.argv[1]}/{number}",
    )
    pfljax.run(experiment, quiet=True, report=False)
    files = len(os.listdir("/proc/self/fd"))
    threads = len(os.listdir("/proc/self/task"))
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    print(files, threads, pages * os.sysconf("SC_PAGE_SIZE"), flush=True)
"""


def held():
    """(open files, threads) of this process."""
    files = os.listdir("/proc/self/fd")
    threads = os.listdir("/proc/self/task")
    return len(files), len(threads)


def resident():
    """Bytes of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def make_state(round_):
    return RunState(
        key=jax.random.key(7),
        round=jnp.int32(round_),
        server={"w": jnp.full((5,), float(round_))},
        clients={"v": jnp.full((12, 5), float(round_))},
        participations=jnp.arange(12),
        cohort=jnp.arange(3),
        selection=(),
        channel=(),
    )


def save(folder, rounds, seen):
    """Saves so many rounds; `seen` gets what is held after each tenth of them."""
    with checkpoint.writer(folder, "config") as write:
        for round_ in range(1, rounds + 1):
            write(round_, make_state(round_))
            if round_ % -(-rounds // 10) == 0:
                seen.append((*held(), resident()))


def held_by(program, cache, folder):
    """[(open files, threads, bytes)] that a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        env=tiny.environment(cache), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]


def assert_constant(seen):
    files, threads, memory = zip(*seen, strict=True)
    assert max(files[1:]) < files[0] + SCATTER, files
    assert max(threads[1:]) < threads[0] + SCATTER, threads
    assert max(memory[1:]) < 1.1 * memory[0], memory


@pytest.mark.slow
def test_checkpoints_hold_no_files_and_threads(tmp_path):
    before = held()
    seen = []
    save(tmp_path, 30, seen)
    assert_constant(seen)
    files, threads = held()
    assert files < before[0] + 10  # each of the 30 saves would keep three
    assert threads < before[1] + SCATTER


def test_writers_hold_no_files(tmp_path):
    save(tmp_path / "first", 2, [])  # JAX and Orbax open theirs for good
    before = held()[0]
    for number in range(4):
        save(tmp_path / str(number), 2, [])
    assert held()[0] < before + 4  # each writer would keep the three of its last save


@pytest.mark.slow
def test_programs_of_the_last_settings_stay_and_can_be_freed():
    built = []
    memory = programs.memoize(built.append)
    for number in range(programs.SETTINGS + 1):
        memory(number)
    memory(programs.SETTINGS)
    assert len(built) == programs.SETTINGS + 1
    memory(0)  # the first had to make room
    assert built[-1] == 0
    pfljax.forget_programs()
    memory(0)
    assert built[-2:] == [0, 0]


@pytest.mark.slow
def test_a_run_of_150_checkpoints(tmp_path):
    seen = held_by(ROUNDS_WITH_CHECKPOINTS, tmp_path / "cache", tmp_path / "run")
    assert len(seen) == 10
    assert_constant(seen)


@pytest.mark.slow
def test_many_runs_in_one_process(tmp_path):
    seen = held_by(MANY_RUNS, tmp_path / "cache", tmp_path)
    assert len(seen) == 12
    assert_constant(seen[1:])
