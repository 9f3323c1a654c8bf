"""The entry point of the command line.

It stands ready for Ctrl-C before anything else is imported, and for an abort and a
reader that leaves before anything heavy is: JAX takes seconds, and what is raised
meanwhile would end in its depths.
"""

import sys

from pfljax.runtime import interrupts

ABORTED = (
    "pfljax: the runtime below Python gave up (see above), mostly for want of memory "
    "or address space (ulimit -v), or as a callback of a method returned another shape "
    "than it says on one of several devices; choose a smaller model, cohort or width, "
    "or mend the callback"
)


def main() -> None:
    """Runs the command of the arguments."""
    interrupts.stop_on_interrupt()
    import gc

    # JAX makes many small objects as it traces, and hardly a cycle to search for.
    gc.set_threshold(50_000)
    from pfljax.cli import streams
    from pfljax.runtime import aborts

    aborts.tell(ABORTED)
    streams.make_safe()
    from pfljax.cli import parser

    try:
        parser.run(sys.argv[1:])
    finally:
        # Python ends with a search of all objects for garbage: of JAX's, half a second.
        gc.freeze()
