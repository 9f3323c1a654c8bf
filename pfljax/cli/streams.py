"""What the command line prints arrives, whatever the terminal can show."""

import io
import os
import sys

STANDARD = range(3)  # the descriptors of stdin, stdout and stderr


def make_safe() -> None:
    """Escapes the signs that the encoding lacks, and opens what was closed."""
    for descriptor in STANDARD:
        _keep_open(descriptor)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _keep_open(descriptor: int) -> None:
    """Leads a closed stream to nowhere.

    The next file that is opened would take its number, and what the runtime logs to
    stderr would be written into it.
    """
    try:
        os.fstat(descriptor)
    except OSError:
        os.open(os.devnull, os.O_RDWR)
