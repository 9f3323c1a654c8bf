"""Small runs for the tests of what a run leaves behind, here and in other processes."""

import contextlib
import functools
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from pfljax import Experiment
from pfljax.cli import parser
from pfljax.cli.options import to_experiment
from pfljax.engine.state import join_stacks, split_ids
from pfljax.report import html
from pfljax.runs import config
from pfljax.runtime import devices, errors
from pfljax.simulate import begin
from pfljax.simulate.export import load_state
from pfljax.simulate.population import open_to_read

TINY = Experiment(
    algorithm="superfed:start=0.0",
    model="mlp:hidden=(8,)",
    clients=6,
    cohort=3,
    rounds=4,
    epochs=1,
    batch_size=20,
    momentum=0.9,
    eval_every=2,
)
SEEN = TINY.replace(unseen=0.2)  # 5 clients train, 1 is held out
COMMAND = "from pfljax.cli.main import main; main()"
RUN = """
import json, sys
from pfljax import Experiment, run
run(Experiment(**json.loads(sys.argv[1])), quiet=True, report=False)
"""


def environment(cache, **more):
    """Environment of a subprocess that shares compiled programs in `cache`.

    It imports what this process would, such as the same pfljax and these files.
    """
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONUNBUFFERED": "1",
        **more,
    }


def command_line(*args, env=None, cwd=None):
    """`pfljax ARGS` in a process of its own: exit code, stdout, stderr."""
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *map(str, args)],
        env=env, cwd=cwd, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def start(experiment, env):
    """The run of an experiment, without a report, begun in a process of its own."""
    fields = config.to_json(experiment)
    return subprocess.Popen(
        [sys.executable, "-c", RUN, json.dumps(fields)],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def main(*args):
    """`pfljax ARGS` in this process: exit code, stdout, stderr."""
    out, stderr, code = io.StringIO(), io.StringIO(), 0
    before, cache = sys.argv, devices.use_compile_cache
    sys.argv, devices.use_compile_cache = ["pfljax", *map(str, args)], lambda: None
    begin.say_once.cache_clear()  # as in a process of its own
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(stderr),
            errors.in_one_line("pfljax"),
        ):
            parser.run(sys.argv[1:])
    except SystemExit as stop:
        code = stop.code
    finally:
        sys.argv, devices.use_compile_cache = before, cache
    return code, out.getvalue(), stderr.getvalue()


@contextlib.contextmanager
def undrawn():
    """Figures are made, and not drawn: that takes a second."""
    before = html.draw
    html.draw = lambda figure, kind: b"<svg/>"
    try:
        yield
    finally:
        html.draw = before


@functools.cache
def finished(base):
    """A finished run below the folder `base`: (its folder, stdout, stderr)."""
    folder = base / "finished"
    code, out, errors = main("run", *options(SEEN.replace(out=str(folder))))
    assert code == 0, errors
    return folder, out, errors


def unfinished(folder, place):
    """A copy of a finished run, as it was after its last checkpoint but one."""
    shutil.copytree(folder, place)
    for name in ("summary.json", "report.html", "checkpoints/4"):
        path = place / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return place


def parsed(*flags):
    """The experiment of `pfljax run FLAGS`."""
    command = parser.parse(["run", *flags])
    return to_experiment(command.keywords["settings"])


def options(experiment):
    """The command-line options of an experiment that differ from the defaults."""
    default = config.to_json(Experiment())
    flags = []
    for name, value in config.to_json(experiment).items():
        if value == default[name]:
            continue
        words = value if isinstance(value, list) else [value]
        flags += [f"--{name.replace('_', '-')}", *map(str, words)]
    return flags


def assert_same_arrays(a, b):
    """Two .npz files have the same arrays, bit for bit, NaN included."""
    with np.load(a) as one, np.load(b) as two:
        assert sorted(one) == sorted(two)
        for name in one:
            assert one[name].dtype == two[name].dtype
            assert one[name].tobytes() == two[name].tobytes(), name


def assert_same_run(a: Path, b: Path):
    """Two finished runs ended with the same state, log, results and summary."""
    from pfljax.conformance.toy import assert_same

    for name in ("metrics.jsonl", "summary.json"):
        assert (a / name).read_text() == (b / name).read_text(), name
    for name in ("clients.npz", "partition.npz"):
        assert_same_arrays(a / name, b / name)
    assert_same(last_state(a), last_state(b))


def last_state(folder):
    """The newest state of a run, with its clients from wherever they are stored."""
    sim, federation, state = load_state(folder)
    if sim.paging is None:
        return state
    population = open_to_read(sim, folder, state)
    stacks = split_ids(sim.setting, np.arange(federation.num_clients))
    clients = [population.states(state, ids) for ids in stacks]
    return state._replace(clients=join_stacks(sim.setting, clients))
