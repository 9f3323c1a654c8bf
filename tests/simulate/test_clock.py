"""Runs with a clock: their log, how they go on, and where else they work."""

import json

import numpy as np
import pytest

import tiny
from pfljax import Experiment
from pfljax.runs import config
from pfljax.runs.folder import FolderError
from pfljax.simulate import run as experiment

JOB = tiny.TINY.replace(
    algorithm="ditto", momentum=0.0, profile="speed_groups:jitter=0.2"
)


def finished(job, folder):
    """(the lines of the log, the summary) of a run."""
    result = experiment.run(job.replace(out=str(folder)), quiet=True, report=False)
    text = (folder / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()], result.summary


def without_clock(line):
    return {k: v for k, v in line.items() if k not in ("seconds", "clock", "turns")}


def test_old_settings_have_their_digest():
    plain = Experiment("ditto")
    same = plain.replace(profile="none", deadline=None, mode="sync")
    assert config.digest(plain) == config.digest(same)
    for change in ({"profile": "equal"}, {"profile": "equal", "deadline": 2.0}):
        assert config.digest(plain) != config.digest(plain.replace(**change))


@pytest.mark.slow
def test_the_log_tells_the_seconds_of_each_round(tmp_path):
    lines, _ = finished(JOB, tmp_path / "timed")
    clock = np.array([line["clock"] for line in lines])
    seconds = np.array([line["seconds"] for line in lines])
    np.testing.assert_allclose(clock, np.cumsum(seconds))
    assert (seconds > 0).all()
    for line in lines:
        clients = [client for client, *_ in line["turns"]]
        assert clients == sorted(clients)
        assert len(clients) == JOB.cohort
        longest = max(end for _, _, end, _ in line["turns"])
        assert longest == pytest.approx(line["clock"])


@pytest.mark.slow
def test_a_clock_changes_nothing_but_the_log(tmp_path):
    lines, summary = finished(JOB, tmp_path / "timed")
    plain, expected = finished(JOB.replace(profile="none"), tmp_path / "plain")
    assert [without_clock(line) for line in lines] == plain
    assert summary["last"] == expected["last"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "store"),
    [("fedbuff:buffer=2", "disk"), ("fedasync", "host")],
)
def test_an_asynchronous_run_in_a_store_has_the_same_bits(tmp_path, mode, store):
    """Of 20 clients a call has at most 11 on the device."""
    job = JOB.replace(mode=mode, clients=20, rounds=6)
    lines, _ = finished(job, tmp_path / "whole")
    clock = [line["clock"] for line in lines]
    assert clock == sorted(clock)
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert max(line["train_staleness"] for line in lines) > 0
    stored = job.replace(state_storage=store)
    finished(stored.replace(rounds=2), tmp_path / "stored")
    finished(stored, tmp_path / "stored")
    tiny.assert_same_run(tmp_path / "stored", tmp_path / "whole")


@pytest.mark.slow
def test_a_clock_in_a_store_of_several_models(tmp_path):
    models = "mlp:hidden=(8,4),mlp:hidden=(6,4)"
    job = JOB.replace(algorithm="lg_fedavg", model="auto", models=models, deadline=1.0)
    plain, _ = finished(job, tmp_path / "plain")
    lines, _ = finished(job.replace(state_storage="host"), tmp_path / "stored")
    assert lines == plain
    assert any(line["seconds"] > 0 for line in lines)


@pytest.mark.slow
def test_a_file_of_devices_may_not_change_while_a_run_goes_on(tmp_path):
    path = tmp_path / "devices.npz"
    np.savez(path, step=0.1, down=1e6, up=1e6)
    job = JOB.replace(profile=f"file:path={path}", rounds=2)
    lines, _ = finished(job, tmp_path / "run")
    np.savez(path, step=0.3, down=1e6, up=1e6)
    with pytest.raises(FolderError, match="was started with other devices"):
        finished(job.replace(rounds=4), tmp_path / "run")
    slower, _ = finished(job, tmp_path / "slower")
    assert slower[0]["seconds"] > 2 * lines[0]["seconds"]


@pytest.mark.slow
def test_a_trace_may_not_change_either(tmp_path):
    path = tmp_path / "trace.npz"
    np.savez(path, available=np.ones((4, JOB.clients)))
    selection = f"availability:pattern=trace,file={path}"
    job = JOB.replace(selection=selection, rounds=1)
    finished(job, tmp_path / "run")
    np.savez(path, available=np.ones((5, JOB.clients)))
    with pytest.raises(FolderError, match="or trace file has now"):
        finished(job.replace(rounds=2, cohort=JOB.cohort), tmp_path / "run")


@pytest.mark.slow
def test_bytes_take_their_time(tmp_path):
    """Of one step and no computing, seconds are those of what is sent."""
    devices = "equal:step=1e-9,down=1000,up=500"
    job = JOB.replace(profile=devices, epochs=None, steps=1)
    lines, summary = finished(job, tmp_path / "run")
    sent = summary["traffic"]
    expected = sent["down_per_client"] / 1000 + sent["up_per_client"] / 500
    np.testing.assert_allclose(lines[0]["seconds"], expected, rtol=1e-5)


@pytest.mark.slow
def test_several_devices_have_the_same_clock(tmp_path):
    job = JOB.replace(deadline=0.2, devices=1)
    one, _ = finished(job, tmp_path / "one")
    folder = tmp_path / "two"
    env = tiny.environment(tmp_path / "xla", JAX_NUM_CPU_DEVICES="2")
    process = tiny.start(job.replace(devices=2, out=str(folder)), env)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    assert [line["turns"] for line in lines] == [line["turns"] for line in one]
