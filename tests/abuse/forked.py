"""`pfljax ARGS` in forks of a process that has loaded pfljax: they begin at once.

A fork has one thread, so this process must never start a backend of JAX: whatever asks
for devices is done in a fork, too.
"""

import atexit
import faulthandler
import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TextIO

COMMAND = """
from pfljax.cli.main import main
{patch}
main()
"""
# Figures take longer than these runs. Ready for Ctrl-C before anything is imported, as
# `main` is.
NO_REPORT = """
from pfljax.runtime import interrupts
interrupts.stop_on_interrupt()
from pfljax import report
report.write_run_report = print
"""


class Started(NamedTuple):
    """A process that was begun, and the files that it writes to."""

    pid: int
    out: Path
    errors: Path

    def said(self) -> str:
        """Its stderr so far."""
        return self.errors.read_text(errors="replace")


def preload() -> None:
    """Loads what a command needs, all but a backend."""
    import orbax.checkpoint  # noqa: F401

    import pfljax.cli.running
    import pfljax.conformance.toy
    import pfljax.landscape
    import pfljax.report.write
    import pfljax.simulate.run_group
    import pfljax.sweep
    import pfljax.sweep.program  # noqa: F401

    # A collection would touch, and so copy, every page of a fork.
    gc.collect()
    gc.freeze()


def command(args: list[str], report: bool = True) -> Callable[[], None]:
    """`pfljax ARGS` as a function for `start`; without figures unless `report`."""

    def call() -> None:
        from pfljax import report as reporting
        from pfljax.cli import main

        sys.argv = ["pfljax", *map(str, args)]
        if not report:
            reporting.write_run_report = lambda folder: None
        main.main()

    return call


def parsed(args: list[str], report: bool = True) -> Callable[[], None]:
    """The same of a command that is right: parsed here, once for many forks."""
    from pfljax.cli import parser

    action = parser._parsed([str(word) for word in args])
    call = command(args, report)

    def call_parsed() -> None:
        parser._parsed = lambda args: action
        call()

    return call_parsed


def start(call: Callable[[], None], said: Path, **environ: str) -> Started:
    """Calls the function in a fork, whose stdout and stderr go to files below `said`.

    Its exit code is that of a script with this call.
    """
    said.mkdir(parents=True, exist_ok=True)
    begun = Started(0, said / "out", said / "err")
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return begun._replace(pid=pid)
    try:
        _redirect(begun)
        os.environ.update(environ)
        _end(_code(call))
    finally:
        # Whatever happens, a fork never goes on with what its parent does.
        os._exit(70)


def start_real(
    args: list[str], said: Path, report: bool = True, **environ: str
) -> Started:
    """The same command in a Python of its own, which loads everything."""
    source = COMMAND.format(patch="" if report else NO_REPORT)
    words = [sys.executable, "-c", source, *map(str, args)]
    return start(lambda: os.execve(words[0], words, dict(os.environ)), said, **environ)


def _redirect(begun: Started) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in ((1, begun.out), (2, begun.errors)):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(path, flags), number)
    # Under pytest or a tool they would be other files than 1 and 2.
    sys.stdout = _text(1)
    sys.stderr = _text(2)
    faulthandler.register(signal.SIGUSR1, file=2)


def _text(number: int) -> TextIO:
    # A fork of a fork opens it again: the first file must not close it when it goes.
    return open(number, "w", buffering=1, errors="backslashreplace", closefd=False)


def _code(call: Callable[[], None]) -> int:
    try:
        call()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(code: int) -> None:
    """What the interpreter does at its end, but for what belongs to the parent."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def alive(begun: Started) -> bool:
    """Whether the process runs; its exit code is still there to be taken."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, begun.pid, options) is None


def poll(begun: Started) -> int | None:
    """The exit code, negative for a signal; None while it runs."""
    pid, status = os.waitpid(begun.pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if pid else None


def wait(begun: Started, seconds: float) -> int | None:
    """The exit code; None where it took longer, and was killed for it."""
    until = time.monotonic() + seconds
    pause = 0.001
    while time.monotonic() < until:
        code = poll(begun)
        if code is not None:
            return code
        time.sleep(pause)
        pause = min(0.02, pause * 1.2)
    # It writes where all its threads are, into what it said.
    os.kill(begun.pid, signal.SIGUSR1)
    time.sleep(0.5)
    os.kill(begun.pid, signal.SIGKILL)
    os.waitpid(begun.pid, 0)
    return None


def holds(call: Callable[[], None], said: Path, seconds: float = 120) -> str:
    """Empty where the function, called in a fork, ends well; else its last line."""
    checked = start(call, said)
    code = wait(checked, seconds)
    if code == 0:
        return ""
    lines = checked.said().strip().splitlines()
    return lines[-1] if lines else f"exit code {code}"
