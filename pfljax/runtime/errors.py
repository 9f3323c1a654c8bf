"""Errors of a program in one line: exit code 2; for signals see `runtime.signals`."""

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from pfljax.runtime import signals
from pfljax.runtime.terminal import show

KINDS = (ValueError, RuntimeError, OSError, MemoryError)
PACKAGE = Path(__file__).parents[1]
NO_READER = 141  # the exit code of a program whose output nobody reads, 128 + SIGPIPE


def shows_traceback() -> bool:
    """Whether the environment variable PFLJAX_TRACE asks for tracebacks."""
    return os.environ.get("PFLJAX_TRACE", "") not in ("", "0")


@contextlib.contextmanager
def without_tracebacks() -> Iterator[None]:
    """JAX logs no traceback of an error in a callback; PFLJAX_TRACE shows them."""
    logger = logging.getLogger("jax._src.callback")
    before = logger.level
    try:
        if not shows_traceback():
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        logger.setLevel(before)


@contextlib.contextmanager
def in_one_line(program: str | None = None) -> Iterator[None]:
    """Ends the program with the message of an error; PFLJAX_TRACE shows the traceback.

    The name of the program stands before the message; by default it is the name of the
    script. When the reader of a pipe leaves, as `| head` does, nothing is printed.
    """
    name = program or Path(sys.argv[0]).name
    try:
        with signals.stopping(name):
            try:
                yield
            finally:
                sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout at exit, and would print the same error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(NO_READER)
    except KINDS as error:
        if shows_traceback():
            raise
        show(f"{name}: {error}", sys.stderr)
        *_, innermost = traceback.extract_tb(error.__traceback__)
        if isinstance(error, ValueError) and not _is_refusal(innermost):
            where = f"{type(error).__name__} at {innermost.filename}:{innermost.lineno}"
            show(f"{where}; PFLJAX_TRACE=1 shows the traceback", sys.stderr)
        sys.exit(2)


def _is_refusal(frame: traceback.FrameSummary) -> bool:
    """Whether pfljax raised an error there on purpose, so that its message suffices."""
    within = PACKAGE in Path(frame.filename).parents
    return within and (frame.line or "").startswith("raise")
