"""Sinks: each has every round once, also after a run that was killed goes on."""

import csv
import importlib.util
import json
import signal
import struct
import subprocess
import sys

import pytest

import tiny
from pfljax import Experiment, run
from pfljax.core import components
from pfljax.runs import config, log, sinks
from pfljax.runs.folder import FolderError
from pfljax.simulate import loop

JOB = Experiment(
    "fedavg", model="logistic", clients=6, cohort=3, rounds=4, epochs=1, eval_every=2
)
ROUNDS = [1, 2, 3, 4]
OF_OTHERS = ("tensorboard", "wandb")
KILLED = """
import json, os, signal, sys
from pfljax import Experiment, run
from pfljax.simulate import loop

save_population = loop.save_population


def save_or_die(population, save, progress):
    if progress.done == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return save_population(population, save, progress)


loop.save_population = save_or_die
run(Experiment(**json.loads(sys.argv[1])), quiet=True, report=False)
"""
LINE = {
    "round": 2,
    "train_loss": None,
    "bytes_up": 30,
    "turns": [[0, 0.0, 1.0, True]],
    "dissimilarity": {"b": 1.5},
    "evaluations": [
        {
            "model": "personal", "split": "test", "clients": clients, "when": when,
            "metrics": {"accuracy": {"mean": mean}, "loss": {"mean": None}},
        }
        for clients, when, mean in (
            ("all", "after the newest broadcast", 0.5),
            ("never chosen", "after the newest broadcast", 0.25),
            ("all", "after local training", 0.75),
        )
    ],
}  # fmt: skip


def needs(package):
    """Skips where the package is not installed; CI has both."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"no {package}: pip install '.[test]'")


def in_csv(folder):
    """(the rounds in order, one by one; the last row)."""
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [int(row["round"]) for row in rows], rows


def in_tensorboard(folder):
    """The steps of each scalar in all files, as they were written."""
    from tensorboardX.proto.event_pb2 import Event

    steps = {}
    for file in sorted((folder / "tensorboard").iterdir()):
        data = file.read_bytes()
        at = 0
        while at < len(data):  # length, its checksum, an event, its checksum
            (size,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + size])
            at += size + 16
            for value in event.summary.value:
                steps.setdefault(value.tag, []).append(event.step)
    return steps


def in_wandb(folder):
    """The rounds that the one offline run of the folder holds, as they were written."""
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    rounds = []
    for content in leveldb_records(file.read_bytes()):
        record = Record.FromString(content)
        for item in record.history.item:
            if (item.key or item.nested_key[0]) == "train_loss":
                rounds.append(record.history.step.num)
    return rounds


def leveldb_records(data, block=32768, header=7):
    """The records of a log in LevelDB's form: checksum, size, part of a record."""
    at = header  # of the file itself
    parts = b""
    while at + header <= len(data):
        if block - at % block < header:
            at += block - at % block
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + header : at + header + size]
        at += header + size
        if kind in (1, 4):  # the whole of a record, or its last part
            yield parts
            parts = b""


class KilledError(Exception):
    """In the place of a kill."""


def killed(job, monkeypatch):
    """The run, ended between the log of its last round and the checkpoint of it."""
    save_population = loop.save_population

    def save_or_die(population, save, progress):
        if progress.done == 4:
            raise KilledError
        return save_population(population, save, progress)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "save_population", save_or_die)
        with pytest.raises(KilledError):
            run(job, quiet=True, report=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["csv", *(pytest.param(n, marks=pytest.mark.slow) for n in OF_OTHERS)]
)
def test_after_a_kill_every_round_is_there_once(name, tmp_path, monkeypatch):
    if name in sinks.PACKAGES:
        needs(sinks.PACKAGES[name])
    monkeypatch.setenv("WANDB_MODE", "offline")
    job = JOB.replace(out=str(tmp_path), log=name)
    killed(job, monkeypatch)
    run(job, quiet=True, report=False)
    assert_whole(tmp_path, name)
    # The numbers of the run are those without a sink.
    lines = (tmp_path / "metrics.jsonl").read_text()
    plain = JOB.replace(out=str(tmp_path.parent / f"plain-{name}"))
    run(plain, quiet=True, report=False)
    assert (tmp_path.parent / f"plain-{name}/metrics.jsonl").read_text() == lines


def assert_whole(folder, name):
    """The sink has every round once, and what the log has of it."""
    wanted = [sinks.make_row(line) for line in log.read(folder / "metrics.jsonl", 4)]
    if name == "csv":
        rounds, rows = in_csv(folder)
        assert rounds == ROUNDS
        numbers = {k: float(v) for k, v in rows[-1].items() if v}
        assert numbers == pytest.approx(wanted[-1])
        assert rows[0]["server/test/accuracy"] == ""
    elif name == "tensorboard":
        steps = in_tensorboard(folder)
        assert steps["train_loss"] == ROUNDS
        assert steps["server/test/accuracy"] == [2, 4]
        assert set(steps) == {name for row in wanted for name in row} - {"round"}
    else:
        assert in_wandb(folder) == ROUNDS


@pytest.mark.slow
def test_a_process_that_is_killed_leaves_whole_sinks_to_who_goes_on(tmp_path):
    for package in sinks.PACKAGES.values():
        needs(package)
    folder = tmp_path / "run"
    job = JOB.replace(out=str(folder), log="csv,tensorboard,wandb")
    env = tiny.environment(tmp_path / "xla", WANDB_MODE="offline")
    # The one of this process would outlive who is killed, and hold its run.
    env.pop("WANDB_SERVICE", None)
    given = json.dumps(config.to_json(job))
    dead = subprocess.run([sys.executable, "-c", KILLED, given], env=env)
    assert dead.returncode == -signal.SIGKILL
    assert in_csv(folder)[0] == ROUNDS  # ahead of the checkpoint
    name = (folder / "wandb" / "id").read_text()
    done = tiny.start(job, env)
    _, errors = done.communicate(timeout=300)
    assert done.returncode == 0, errors
    for sink in sinks.SINKS:
        assert_whole(folder, sink)
    (file,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    assert file.name == f"run-{name}.wandb"


def test_a_sink_that_joins_later_has_the_rounds_of_before(tmp_path, monkeypatch):
    job = JOB.replace(out=str(tmp_path))
    killed(job, monkeypatch)
    run(job.replace(log="csv"), quiet=True, report=False)
    assert in_csv(tmp_path)[0] == ROUNDS


def test_a_row_has_the_numbers_of_a_line():
    assert sinks.make_row(LINE) == {
        "round": 2, "bytes_up": 30, "dissimilarity/b": 1.5,
        "personal/test/accuracy": 0.5, "never_chosen/personal/test/accuracy": 0.25,
        "trained/test/accuracy": 0.75,
    }  # fmt: skip


def test_a_missing_package_is_refused_before_anything_is_compiled(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sinks.PACKAGES, "wandb", "no_such_package")
    folder = tmp_path / "run"
    code, _, errors = tiny.main("run", "--log", "csv,wandb", "--out", str(folder))
    assert code != 0
    (line,) = errors.splitlines()
    assert "no_such_package cannot be imported (ModuleNotFoundError: " in line
    assert line.endswith("pip install 'pfljax[wandb]'")
    assert not folder.exists()


@pytest.mark.parametrize("name", ["wandb", ".wandb"])
def test_a_strangers_settings_of_weights_and_biases_are_refused(
    name, tmp_path, monkeypatch
):
    """In the run folder they would be those of the program."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    settings = tmp_path / name / "settings"
    settings.write_text("[default]\nbase_url = http://127.0.0.1:9\n")
    with pytest.raises(FolderError, match=r"settings is not of pfljax, .*; delete it"):
        run(JOB.replace(out=str(tmp_path), log="csv,wandb"), quiet=True)
    assert settings.exists()


@pytest.mark.slow
def test_weights_and_biases_without_a_login_is_one_line(tmp_path, monkeypatch):
    needs("wandb")
    import wandb

    def refuse(**settings):
        raise wandb.errors.UsageError("No API key configured.")

    monkeypatch.setattr(wandb, "init", refuse)
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(ValueError, match="No API key configured; `wandb login` once"):
        sinks.wandb()(tmp_path, JOB, True)


def test_sent_runs_of_weights_and_biases_stay(tmp_path):
    sent, unsent = (tmp_path / f"offline-run-{name}" for name in ("sent", "unsent"))
    sent.mkdir()
    unsent.mkdir()
    (sent / "run-a.wandb.synced").write_text("")
    sinks._remove_unsent(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [sent.name]


def test_sinks_are_chosen_by_name_and_option():
    job = Experiment(log="csv,wandb:project=mine")
    assert job.log == (
        components.Component("csv"), components.Component("wandb", {"project": "mine"})
    )  # fmt: skip
    assert config.from_dict(config.to_dict(job)) == job
    assert tiny.parsed("--log", "csv,wandb:project=mine") == job
