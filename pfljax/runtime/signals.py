"""Ctrl-C, and SIGTERM, which a cluster sends before it takes the machine away.

The command line ends at either one, in one line. `deferred` lets a run reach the end of
its rounds first.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

from pfljax.runtime.terminal import show

REQUEUE = 75  # the exit code of a job to start again: EX_TEMPFAIL of sysexits.h
STATUS = {signal.SIGINT: 130, signal.SIGTERM: REQUEUE}
STOPPED = "stopped; the same command resumes"

_terms: list[int] = []  # the signals that are deferred


@contextmanager
def stopping(name: str) -> Iterator[None]:
    """Ends the program of this name at once, in one line, at a signal of `STATUS`."""
    # Not as a KeyboardInterrupt: Orbax's event loops swallow it now and then, and a
    # thread that writes a checkpoint may hold the end of Python forever.
    before = {number: signal.signal(number, partial(_stop, name)) for number in STATUS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(name: str, number: int, frame: FrameType | None) -> None:
    os.write(2, f"\n{name}: {STOPPED}\n".encode())
    os._exit(STATUS[signal.Signals(number)])


@contextmanager
def deferred() -> Iterator[None]:
    """Ends the program at SIGTERM only after this block; `terminated` tells in between.

    A second SIGTERM kills it. Outside of the main thread, and where the program handles
    SIGTERM itself, nothing changes.
    """
    before = signal.getsignal(signal.SIGTERM)
    is_ours = isinstance(before, partial) and before.func is _stop
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not (is_ours or before is signal.SIG_DFL):
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        _terms.append(number)
        signal.signal(number, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, note)
    try:
        yield
        if terminated():
            show(f"pfljax: {STOPPED}", sys.stderr)
            sys.exit(REQUEUE)
    finally:
        _terms.clear()
        signal.signal(signal.SIGTERM, before)


def terminated() -> bool:
    """Whether SIGTERM has come, in a block of `deferred`."""
    return bool(_terms)
