"""The entry point of the command line. Errors and Ctrl-C end here, in one line."""

import gc
import sys

from pfljax.runtime import errors


def main() -> None:
    """Runs the command of the arguments."""
    # JAX makes many small objects as it traces, and hardly a cycle to search for.
    gc.set_threshold(50_000)
    try:
        with errors.in_one_line("pfljax"):
            from pfljax.cli import parser

            parser.run(sys.argv[1:])
    finally:
        # Python searches all objects for garbage at exit: half a second with JAX's.
        gc.freeze()
