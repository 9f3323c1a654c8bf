"""What the system allows a process, where too little of it would end in a trace."""

import os

FEWEST_FILES = 64  # a run has about thirty open at once


def check() -> None:
    """Refuses to begin where too few files may be open.

    Raises:
      ValueError: with the limit, and how to raise it.
    """
    if os.name != "posix":
        return
    import resource  # of POSIX alone

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= files < FEWEST_FILES:
        raise ValueError(
            f"only {files} files may be open at once, expected at least "
            f"{FEWEST_FILES}: raise `ulimit -n`"
        )
