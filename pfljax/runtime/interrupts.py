"""Ctrl-C ends a program at once, with a line.

It stands before every other import of a program: so it imports next to nothing.
"""

import os
import signal

STOPPED = "pfljax: stopped"
RESUMES = "pfljax: stopped; the same command goes on from what is saved"


def stop_on_interrupt() -> None:
    """From now on Ctrl-C ends the program at once, with a line."""
    signal.signal(signal.SIGINT, lambda *_: end(f"\n{STOPPED}", 130))


def leave(*_: object) -> None:
    """Ctrl-C of a program that resumes: leaves at once, as a kill would.

    A run is safe against that; an exception would be lost where it falls into a
    callback of the runtime.
    """
    end(f"\n{RESUMES}", 130)


def end(line: str, code: int) -> None:
    """Ends the program with a line on stderr, from whatever thread.

    No handler at exit runs, so none waits for a thread or for another process.
    """
    # Not print: it may hold the stream's lock in the very call that was interrupted.
    try:
        os.write(2, f"{line}\n".encode())
    finally:
        # Where stderr is closed it ends without the line.
        os._exit(code)
