"""How a program ends early: in one line, without a traceback.

A user's mistake has exit code 2, Ctrl-C 130.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KINDS = (ValueError, RuntimeError, OSError, MemoryError)


@contextlib.contextmanager
def in_one_line(program: str | None = None) -> Iterator[None]:
    """Ends the program on an error of these kinds; PFLJAX_TRACE shows where it was.

    Around a block, or as a decorator. `program` stands before the message; by default
    it is the name of the script.
    """
    try:
        yield
    except KINDS as error:
        if os.environ.get("PFLJAX_TRACE"):
            raise
        print(f"{program or Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(2)


@contextlib.contextmanager
def stopped_at_once() -> Iterator[None]:
    """Around what resumes, a block or a function: Ctrl-C ends the program at once."""
    # A handler, not KeyboardInterrupt, which JAX's callbacks would swallow.
    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def leave(*_: Any) -> None:
    """Ctrl-C of a program that resumes: leaves at once, as a kill would.

    A run is safe against that; an exception would be lost where it falls into a
    callback of the runtime.
    """
    line = "pfljax: stopped; the same command goes on from what is saved"
    print(f"\n{line}", file=sys.stderr, flush=True)
    # No handler at exit runs, so none waits for a thread that still writes.
    os._exit(130)
