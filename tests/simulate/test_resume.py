"""Killed at any moment, even in a save, a run goes on and ends with the same bits."""

import functools
import random
import signal
import subprocess
import sys
import time

import pytest

import tiny
from pfljax.runs import checkpoint

pytestmark = pytest.mark.slow
JOB = tiny.TINY.replace(algorithm="fedper", rounds=24, eval_every=3)
LINES = [random.Random(0).randrange(9, 22)]  # rounds logged before a kill
# Clients of two architectures, whose states are in two stacks, or stores.
TWO = "mlp:hidden=(8,4),mlp:hidden=(5,4),mlp:hidden=(8,4)"
MODELS = {
    "one": JOB,
    "two": JOB.replace(algorithm="lg_fedavg", model="auto", models=TWO, clients=8),
    # Clients that differ in speed: the server takes late uploads.
    "fedasync": JOB.replace(profile="speed_groups:jitter=0.2", mode="fedasync"),
    "fedbuff": JOB.replace(profile="speed_groups:jitter=0.2", mode="fedbuff:buffer=2"),
}
# By store: rounds logged before a kill. Each is killed in a save, too.
KILLS = {
    ("device", "one"): LINES,
    ("host", "one"): [],
    ("disk", "two"): LINES,
    ("device", "fedasync"): LINES,
    ("disk", "fedbuff"): LINES,
}


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    return tiny.environment(tmp_path_factory.mktemp("xla"))


@pytest.fixture(scope="module")
def whole(env, tmp_path_factory):
    """The folder of a run of MODELS, uninterrupted, with its states on the devices."""

    @functools.cache
    def finish(models):
        folder = tmp_path_factory.mktemp("whole") / models
        _finish(MODELS[models].replace(out=str(folder)), env)
        return folder

    return finish


def _finish(job, env):
    process = tiny.start(job, env)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors


def _logged(folder):
    log = folder / "metrics.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _saving(folder):
    return list((folder / "checkpoints").glob("*orbax-checkpoint-tmp*"))


def _kill(process, ready, delay):
    """Kills the process `delay` seconds after ready(); whether it was still there."""
    deadline = time.monotonic() + 300
    while process.poll() is None and not ready():
        assert time.monotonic() < deadline
        time.sleep(0.0005)
    time.sleep(delay)
    alive = process.poll() is None
    process.kill()
    process.communicate()
    return alive


@pytest.mark.parametrize(("store", "models"), KILLS)
def test_killed_anywhere_ends_with_the_same_bits(env, whole, tmp_path, store, models):
    folder, chance = tmp_path / "run", random.Random(1)
    job, kills = MODELS[models].replace(out=str(folder), state_storage=store), 0
    if store == "device":
        kills = _kill(tiny.start(job, env), folder.exists, chance.random() / 10)
    while not _saving(folder):
        kills += _kill(tiny.start(job, env), lambda: _saving(folder), 0)
        assert kills < 9, "no kill fell into a save"
    for lines in KILLS[store, models]:
        ready = lambda lines=lines: _logged(folder) >= lines  # noqa: E731
        kills += _kill(tiny.start(job, env), ready, chance.random() / 50)
    assert kills >= (store == "device") + 1 + len(KILLS[store, models])
    assert not (folder / "summary.json").exists()
    _finish(job, env)
    tiny.assert_same_run(folder, whole(models))
    assert not _saving(folder)


# Each call is one round, so that a signal comes between two checkpoints.
BY_ROUND = f"from pfljax.simulate import loop; loop.CALL_SECONDS = 0; {tiny.COMMAND}"


def _terminate(command, env, ready, script=BY_ROUND):
    """Sends SIGTERM to `pfljax COMMAND` as soon as ready(); returns its stderr."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *command],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while process.poll() is None and not ready():
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, out) == (75, ""), errors
    return errors.splitlines()


def test_sigterm_saves_after_the_round_and_the_same_command_goes_on(env, tmp_path):
    long = JOB.replace(rounds=90, eval_every=60, state_storage="host")
    folder = tmp_path / "run"
    job = long.replace(out=str(folder))
    command = ["run", *tiny.options(job)]
    last = _terminate(command, env, lambda: _logged(folder) >= 9)[-1]
    done = _logged(folder)
    assert 9 <= done < 60
    assert last == (
        f"pfljax: SIGTERM: saved {folder} after round {done} of 90; the same command "
        "resumes"
    )
    assert checkpoint.saved_rounds(folder / "checkpoints") == [done]
    _finish(job, env)
    whole = long.replace(out=str(tmp_path / "whole"))
    _finish(whole, env)
    tiny.assert_same_run(folder, tmp_path / "whole")


def test_sigterm_ends_a_comparison_in_its_first_run(env, tmp_path):
    job = JOB.replace(out=str(tmp_path), rounds=90, eval_every=60)
    flags = tiny.options(job.replace(algorithm="fedavg"))
    log = tmp_path / "local" / "s0"
    command = ["compare", "fedper", *flags, "--seeds", "1"]
    last = _terminate(command, env, lambda: _logged(log) >= 9)[-1]
    assert last.startswith(f"pfljax: SIGTERM: saved {log} after round ")
    assert [path.name for path in tmp_path.iterdir()] == ["local"]


def test_sigterm_saves_the_runs_of_a_sweep_that_train_together(env, tmp_path):
    long = JOB.replace(rounds=90, eval_every=60, out=str(tmp_path), devices=1)
    command = ["sweep", *tiny.options(long), "--over", "seed", "0", "1"]
    log = tmp_path / "fedper" / "s0"
    lanes = "from pfljax.sweep import run; run._choose_lanes = lambda _: 2"
    said = _terminate(command, env, lambda: _logged(log) >= 9, f"{lanes}; {BY_ROUND}")
    assert sum("SIGTERM: saved" in line for line in said) == 2
    folders = tmp_path.glob("*/s*/checkpoints")
    saved = {tuple(checkpoint.saved_rounds(path)) for path in folders}
    assert len(saved) == 1  # both after the same round
    assert saved != {()}


def test_ctrl_c_is_one_line_and_the_same_command_goes_on(env, whole, tmp_path):
    folder = tmp_path / "run"
    job = JOB.replace(out=str(folder))
    options = tiny.options(job)
    process = subprocess.Popen(
        [sys.executable, "-c", tiny.COMMAND, "run", *options],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while process.poll() is None and _logged(folder) < 10:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=120)
    last = errors.splitlines()[-1]
    assert process.returncode not in (0, None)
    assert last == "pfljax: stopped; the same command resumes"
    assert "Traceback" not in errors
    assert out == ""
    assert 10 <= _logged(folder) < JOB.rounds
    _finish(job, env)
    tiny.assert_same_run(folder, whole("one"))
