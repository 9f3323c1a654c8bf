"""The program around the commands: Ctrl-C, closed pipes, errors in one line."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

import tiny
from pfljax.core.requirements import require
from pfljax.runtime import errors

RUN = ["run", "--clients", "6", "--cohort", "3", "--model", "mlp"]
# More rounds than any machine runs before the signal comes.
ENDLESS = [*RUN, "--rounds", "1000000"]
BUSY = """
import signal, threading
from pfljax.runtime import errors
with errors.in_one_line("script"):
    threading.Thread(target=threading.Event().wait).start()
    signal.raise_signal(signal.SIGINT)
"""


def shell(command):
    """bash's answer; `pfljax` in the command is this one."""
    pfljax = f"{shlex.quote(sys.executable)} -m pfljax"
    command = command.replace("pfljax", pfljax)
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "delay", "code"),
    [
        (signal.SIGINT, 0.5, 130),
        (signal.SIGINT, 3, 130),
        (signal.SIGINT, 9, 130),
        (signal.SIGTERM, 1, 75),
    ],
)
def test_ctrl_c_and_sigterm_are_one_line(number, delay, code, tmp_path):
    """While it imports, while it compiles, while it trains."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pfljax", *ENDLESS, "--out", str(tmp_path / "run")],
        env=tiny.environment(tmp_path / "xla"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(delay)
    process.send_signal(number)
    _, said = process.communicate(timeout=300)
    assert process.returncode == code, said
    assert said.splitlines()[-1] == "pfljax: stopped; the same command resumes"
    assert "Traceback" not in said


def test_errors_end_in_one_line_and_others_pass(monkeypatch, capsys):
    monkeypatch.delenv("PFLJAX_TRACE", raising=False)
    with pytest.raises(SystemExit) as ended, errors.in_one_line("pfljax"):
        require("lr", 3, False, "less")
    assert ended.value.code == 2
    assert capsys.readouterr().err == "pfljax: lr is 3; expected less\n"
    with pytest.raises(SystemExit), errors.in_one_line("pfljax"):
        raise ValueError("no")  # as in a user's method
    _, hint = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"ValueError at .*/test_start\.py:\d+; PFLJAX_TRACE=1 shows .*", hint
    )
    with pytest.raises(KeyError), errors.in_one_line("pfljax"):
        raise KeyError("a fault of pfljax")
    monkeypatch.setenv("PFLJAX_TRACE", "1")
    with pytest.raises(ValueError, match="no"), errors.in_one_line("pfljax"):
        raise ValueError("no")


def test_ctrl_c_waits_for_no_thread():
    """A checkpoint that is being written does not hold the program."""
    done = subprocess.run(
        [sys.executable, "-c", BUSY], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 130
    assert done.stderr == "\nscript: stopped; the same command resumes\n"


@pytest.mark.slow
def test_a_reader_that_left_is_no_error():
    here, there = os.pipe()
    os.close(here)
    command = [sys.executable, "-m", "pfljax", "list", "algorithms"]
    try:
        done = subprocess.run(command, stdout=there, stderr=subprocess.PIPE)
    finally:
        os.close(there)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.slow
def test_help_to_a_reader_that_left_is_no_error():
    done = shell("set -o pipefail; pfljax run --help | (exec <&-; sleep 5)")
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.slow
def test_a_full_disk_behind_stdout_is_one_line():
    done = shell("pfljax list algorithms > /dev/full")
    assert done.stderr.startswith("pfljax: [Errno 28] No space left on device\n")
