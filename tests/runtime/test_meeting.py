"""Processes meet, know each other by a token, and end with a line if one is lost."""

import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import tiny
from pfljax.runtime import meeting

LIMIT = 120  # seconds: what is promised of a lost process
PROGRAM = """
import os, signal, sys, time
import numpy as np
from pfljax.runtime import errors, files, meeting, processes
meeting.COMING, meeting.SILENCE, meeting.LEAVING = 4, 10, 5
me = int(sys.argv[2])
def wrong(): raise files.FolderError("all hear of it")
def tried(action):
    try:
        return processes.ask(action)
    except (TypeError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
with errors.in_one_line("pfljax"):
    meeting.connect(sys.argv[1], 2, me)
    print("met", flush=True)
    with meeting.ending_together():
        exec(sys.argv[3])
"""
ASKS = """
print(processes.ask(lambda: [me, None, np.arange(3.0) + me, {"a": "±"}]))
print(tried(wrong))
print(tried(lambda: {1, 2}))
print(processes.ask(lambda: "x" * 10000)[-3:])
"""


def start(address, process, body="", **environment):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, address, str(process), body],
        env=tiny.environment("/tmp", JAX_NUM_CPU_DEVICES="1", **environment),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(started):
    """(exit code, stdout, stderr) of each process."""
    try:
        told = [process.communicate(timeout=LIMIT) for process in started]
    finally:
        for process in started:
            process.kill()
    answers = []
    for process, (out, errors) in zip(started, told, strict=True):
        # Gloo tells on stdout whom it has found.
        lines = [line for line in out.splitlines() if not line.startswith("[Gloo]")]
        answers.append((process.returncode, lines, errors))
    return answers


def pair(body, **environment):
    place = address()
    return [start(place, i, body, **environment) for i in range(2)]


def address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def last_line(errors):
    return errors.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("token", [{}, {"PFLJAX_TOKEN": "secret"}])
def test_all_hear_what_the_first_says(token):
    array = np.arange(3.0)
    said = [
        "met",
        f"[0, None, {array!r}, {{'a': '±'}}]",
        "FolderError: all hear of it",
        "TypeError: set cannot be sent to the other processes; expected values of "
        "JSON, or arrays of numbers",
        "xxx",
    ]
    for code, out, errors in ended(pair(ASKS, **token)):
        assert code == 0, errors
        assert out == said


@pytest.mark.slow
@pytest.mark.parametrize("other", [{}, {"PFLJAX_TOKEN": "another"}])
def test_processes_of_different_tokens_do_not_believe_each_other(other):
    place = address()
    pair = [start(place, 0, PFLJAX_TOKEN="secret"), start(place, 1, **other)]
    for code, out, errors in ended(pair):
        assert (code, out) == (2, [])
        assert last_line(errors) == (
            "pfljax: the processes of this run have different values of PFLJAX_TOKEN, "
            "or some have none; give all of them the same"
        )


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("busy", ["time.sleep(100)", "processes.every(True)"])
@pytest.mark.parametrize("way", ["os._exit(9)", "os.kill(os.getpid(), signal.SIGSTOP)"])
def test_a_lost_process_ends_the_others_with_a_line(lost, busy, way):
    began = time.monotonic()
    started = pair(f"{way} if me == {lost} else {busy}")
    left = started[1 - lost]
    try:
        _, errors = left.communicate(timeout=LIMIT)
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert left.returncode == 2
    assert last_line(errors) == meeting.LOST
    assert time.monotonic() - began < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("process", [0, 1])
def test_a_process_that_never_comes_is_told(process):
    [(code, out, errors)] = ended([start(address(), process)])
    assert (code, out) == (2, [])
    assert last_line(errors).startswith(
        "pfljax: the 2 processes did not all meet within 8 seconds (see above); start "
    )


def test_a_proof_is_of_its_process_challenge_and_token(monkeypatch):
    proofs = set()
    for token in ("", "a", "b"):
        monkeypatch.setenv(meeting.TOKEN, token)
        for challenge in (b"1", b"2"):
            proofs |= {meeting._proof(challenge, process) for process in (0, 1, 11)}
    assert len(proofs) == 3 * 2 * 3
    assert {len(proof) for proof in proofs} == {32}


def test_by_default_a_lost_process_is_told_within_two_minutes():
    assert 2 * meeting.COMING <= LIMIT
    assert meeting.SILENCE < LIMIT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", 2, 0), "coordinator is 'x'; expected HOST:PORT"),
        (("127.0.0.1:0", 1, 0), "coordinator is '127.0.0.1:0'; expected HOST:PORT"),
        ((3, 2, 0), "coordinator is 3; expected HOST:PORT"),
        (("x:1", 2, 5), "process is 5 of --processes 2; expected 0 <= process < 2"),
        (("x:1", "2", 0), "processes is '2'; expected a whole number"),
        (("x:1", 2, None), "belong together; missing: --process"),
    ],
)
def test_odd_arguments_are_told_before_anything_waits(arguments, message, monkeypatch):
    def meet(*args, **options):
        raise AssertionError("it waits")

    monkeypatch.setattr("jax.distributed.initialize", meet)
    with pytest.raises(ValueError, match=message):
        meeting.connect(*arguments)


def test_more_processes_than_jax_can_count_are_refused():
    with pytest.raises(
        ValueError, match=r"--processes is .*expected a .* below 2\*\*31"
    ):
        meeting.address(False, "localhost:1", 2**31, 0)
