"""What a user's mistake looks like: one line, exit code 2, and no traceback."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

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
