"""How a program ends early: in one line, without a traceback.

A user's mistake has exit code 2, Ctrl-C 130.
"""

import contextlib
import errno
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pfljax.runtime import callbacks, files, interrupts

KINDS = (ValueError, RuntimeError, OSError, MemoryError)
NO_READER = 141  # the exit code of a program whose output nobody reads, 128 + SIGPIPE
# Whoever reads is told so as well: the other refusals are of a file, which is named.
SCARCE = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE)
LESS_MEMORY = "choose a smaller model, cohort or width, or --store disk"

NO = ("", "0")  # of an environment variable that says yes or no


def tracing() -> bool:
    """Whether PFLJAX_TRACE, an environment variable, asks for tracebacks."""
    return os.environ.get("PFLJAX_TRACE", "") not in NO


@contextlib.contextmanager
def in_one_line(program: str | None = None) -> Iterator[None]:
    """Ends the program on an error of these kinds; PFLJAX_TRACE shows where it was.

    Around a block, or as a decorator. `program` stands before the message; by default
    it is the name of the script. Where nobody reads on, as after `| head`, it ends
    without a word.
    """
    name = program or Path(sys.argv[0]).name
    try:
        with _flushed(), callbacks.heard(partial(_end, name)):
            yield
    except BrokenPipeError:
        _discard_output()
        sys.exit(NO_READER)
    except KINDS as error:
        if tracing():
            raise
        print(f"{name}: {sentence(error)}", file=sys.stderr)
        if isinstance(error, OSError):
            _discard_output()
        sys.exit(2)


def _end(program: str, error: BaseException) -> None:
    """Ends the program whose callback raised this, from that callback's thread.

    Other devices may wait for it for good, and JAX at exit.
    """
    if tracing():
        traceback.print_exception(error)
    _discard_output()
    interrupts.end(f"{program}: {callbacks.sentence(error)}", 2)


@contextlib.contextmanager
def _flushed() -> Iterator[None]:
    """Writes out at the end what was printed, while errors are still told."""
    try:
        yield
    except SystemExit:
        _flush()
        raise
    _flush()


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _discard_output() -> None:
    """Leads stdout to nowhere where it cannot be written to.

    Python flushes it once more at exit, and would tell of the same error in a trace.
    """
    try:
        _flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


def sentence(error: BaseException) -> str:
    """What an error says, in one line, and what to do where the system says it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, OSError) and error.errno in SCARCE:
        return f"{lines[0]}; {files.MEND[error.errno]}"
    if isinstance(error, MemoryError) and not str(error):
        return f"out of memory; {LESS_MEMORY}"
    if lines[0].startswith("RESOURCE_EXHAUSTED"):
        # TensorStore says so of a full disk, too.
        full = os.strerror(errno.ENOSPC)
        if full in lines[0]:
            return f"{full}; {files.MEND[errno.ENOSPC]}"
        return f"{lines[0]}; {LESS_MEMORY}"
    return lines[0]


@contextlib.contextmanager
def stopped_at_once() -> Iterator[None]:
    """Around what resumes, a block or a function: Ctrl-C ends the program at once."""
    # A handler, not KeyboardInterrupt, which JAX's callbacks would swallow.
    before = signal.signal(signal.SIGINT, interrupts.leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
