"""Two processes do as one; killed, both or one of them go on from the checkpoint."""

import csv
import shutil
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import tiny
from pfljax.runs import folder, log
from pfljax.runtime import processes

pytestmark = pytest.mark.slow
JOB = tiny.TINY.replace(
    algorithm="fedper", cohort=4, rounds=24, eval_every=4, log="csv"
)
SEVERAL = JOB.replace(
    algorithm="lg_fedavg",
    model="auto",
    models="mlp:hidden=(8,4),mlp:hidden=(5,4),mlp:hidden=(8,4)",
)
KILLED = 10  # rounds in the log before a process is killed
LIMIT = 300  # seconds
PROGRAM = f"""
from pfljax import report
report.write_run_report = print  # figures take longer than these runs
{tiny.COMMAND}
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("xla")


@pytest.fixture(scope="module")
def alone(cache, tmp_path_factory):
    """The folder of the same run by one process with one device."""
    path = tmp_path_factory.mktemp("alone") / "run"
    _finish([_start(cache, path, devices=1)])
    return path


@pytest.fixture(scope="module")
def killed(cache, tmp_path_factory):
    """A run by two processes, one killed in the middle, and then the other."""
    path = tmp_path_factory.mktemp("killed") / "run"
    pair = _pair(cache, path)
    until = time.monotonic() + LIMIT
    while _logged(path) < KILLED and all(p.poll() is None for p in pair):
        assert time.monotonic() < until
        time.sleep(0.001)
    pair[1].kill()
    time.sleep(1)
    pair[0].kill()  # as a scheduler does once a process is gone
    outputs = [process.communicate() for process in pair]
    assert _logged(path) >= KILLED, outputs
    assert not (path / "summary.json").exists()
    assert folder.read_config(path).devices is None  # no matter of the experiment
    return path


def _start(cache, path, *options, devices=2, job=JOB):
    """`pfljax run` in a process with this many devices."""
    given = tiny.options(job.replace(out=str(path)))
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "run", *options, *given],
        env=tiny.environment(cache, JAX_NUM_CPU_DEVICES=str(devices)),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def _meeting():
    """Options of two processes, but for the number of this one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    return ["--coordinator", place, "--processes", "2", "--process"]


def _pair(cache, path, *options, job=JOB):
    join = _meeting()
    return [_start(cache, path, *join, str(i), *options, job=job) for i in range(2)]


def _finish(started):
    """Waits for the processes and returns their (stdout, stderr)."""
    try:
        outputs = [process.communicate(timeout=LIMIT) for process in started]
    finally:
        for process in started:
            process.kill()
    assert not any(process.returncode for process in started), outputs
    return outputs


def _logged(path):
    log = path / "metrics.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _assert_same(path, alone):
    """The same results, and each round in the log once."""
    lines = log.read(path / "metrics.jsonl", JOB.rounds)
    assert [line["round"] for line in lines] == list(range(1, JOB.rounds + 1))
    with open(path / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["round"]) for row in rows] == [line["round"] for line in lines]
    one = folder.read_arrays(alone / "clients.npz")
    two = folder.read_arrays(path / "clients.npz")
    assert sorted(one) == sorted(two)
    for name in one:
        # XLA rounds the two programs differently, and rounds of training let that grow.
        np.testing.assert_allclose(two[name], one[name], rtol=1e-4, atol=1e-4)
    last = [folder.read_json(p / "summary.json")["last"] for p in (path, alone)]
    for ours, theirs in zip(*(each["evaluations"] for each in last), strict=True):
        for name, figures in theirs["metrics"].items():
            assert ours["metrics"][name] == pytest.approx(figures, abs=1e-4)


def test_two_processes_go_on_and_do_as_one(cache, killed, alone, tmp_path):
    path = shutil.copytree(killed, tmp_path / "run")
    first, second = _finish(_pair(cache, path))
    _assert_same(path, alone)
    assert "4 devices of 2 processes" in first[1]
    assert f"round {JOB.rounds}/{JOB.rounds}" in first[1]
    assert "accuracy" in first[0]
    assert "round" not in second[1]
    assert "accuracy" not in second[0]


def test_sigterm_of_one_process_ends_both_at_one_round(cache, alone, tmp_path):
    path = tmp_path / "run"
    pair = _pair(cache, path)
    while _logged(path) < 2 and pair[1].poll() is None:
        time.sleep(0.001)
    pair[1].terminate()
    errors = [process.communicate(timeout=LIMIT)[1] for process in pair]
    assert [process.returncode for process in pair] == [75, 75], errors
    done = _logged(path)
    assert f"SIGTERM: saved {path} after round {done} of {JOB.rounds}" in errors[0]
    assert "SIGTERM" not in errors[1]
    assert (path / "checkpoints" / str(done)).is_dir()
    _finish(_pair(cache, path))
    _assert_same(path, alone)


def test_two_processes_train_several_architectures(cache, tmp_path):
    """Pinned: groups of 4 and 2 clients lie on 4 devices."""
    alone, home = tmp_path / "alone", tmp_path / "home"
    _finish([_start(cache, alone, devices=1, job=SEVERAL)])
    _finish(_pair(cache, home, "--pin-clients", job=SEVERAL))
    _assert_same(home, alone)


def test_one_process_goes_on_where_two_were(cache, killed, alone, tmp_path):
    path = shutil.copytree(killed, tmp_path / "run")
    _finish([_start(cache, path, devices=1)])
    _assert_same(path, alone)


def test_processes_of_two_commands_are_refused(cache, tmp_path):
    path, join = tmp_path / "run", _meeting()
    jobs = [[], ["--lr", "0.9"]]
    pair = [
        _start(cache, path, *join, str(i), *more, devices=1)
        for i, more in enumerate(jobs)
    ]
    outputs = [process.communicate(timeout=LIMIT)[1] for process in pair]
    assert [process.returncode for process in pair] == [2, 2]
    for errors in outputs:
        assert "the processes of this run have different settings" in errors
    assert not (path / "config.json").exists()


ASKS = """
import sys
import numpy as np
from pfljax.runtime import files, processes
me = int(sys.argv[2])
def wrong(): raise files.FolderError("all of them fail")
processes.connect(sys.argv[1], 2, me)
print(processes.ask(lambda: [me, None, np.arange(3, dtype="f") + me, {"a": "±"}]))
print(processes.ask(lambda: "x" * 10000)[-3:])
try:
    processes.ask(wrong)
except RuntimeError as error:
    print(error)
"""


def test_every_process_gets_the_answer_of_the_first():
    _, place, *_ = _meeting()
    pair = [
        subprocess.Popen(
            [sys.executable, "-c", ASKS, place, str(i)],
            env=tiny.environment("/tmp", JAX_NUM_CPU_DEVICES="1"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for i in range(2)
    ]  # fmt: skip
    array = np.arange(3, dtype="f")
    answers = [str([0, None, array, {"a": "±"}]), "xxx", "all of them fail"]
    for out, _ in _finish(pair):
        # Gloo prints on stdout which processes it has found.
        lines = [line for line in out.splitlines() if not line.startswith("[Gloo]")]
        assert lines == answers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((False, "a:1", None, None), "missing: --processes --process"),
        ((False, None, 2, 1), "missing: --coordinator"),
        ((True, "a", 2, 1), "expected HOST:PORT"),
        ((False, "a:1", 2, 2), "0 <= process < 2"),
    ],
)
def test_impossible_addresses_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        processes.address(*arguments)


def test_options_of_the_processes_are_no_settings():
    place = {"coordinator": "a:1", "processes": 2, "process": 0}
    assert processes.address(False, **place) == place
    nothing = dict.fromkeys(place)
    assert processes.address(True, **nothing) == nothing
    assert processes.address(False, **nothing) is None
