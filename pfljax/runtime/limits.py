"""What the system allows a process, where too little of it would end in a trace."""

import math
import os
import re
from pathlib import Path

FEWEST_FILES = 64  # a run has about thirty open at once
# Address space that the smallest run takes on two cores when all is imported. With less
# the C library may end the program where it begins a thread, and no handler is asked.
OF_A_RUN = 1.5 * 2**30


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


def check_address_space(fewest: float) -> None:
    """Refuses what cannot go well where `ulimit -v` leaves fewer bytes.

    Raises:
      MemoryError: with what is left, and how to raise it.
    """
    left = address_space()
    if left < fewest:
        raise MemoryError(
            f"{left / 2**30:.1f} GiB of address space are left, expected at least "
            f"{fewest / 2**30:.1f}: raise `ulimit -v`"
        )


def address_space() -> float:
    """Bytes that `ulimit -v` leaves this process; infinity where nothing is limited."""
    status = Path("/proc/self/status")
    if not status.exists():
        return math.inf
    import resource  # of POSIX alone

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return math.inf
    line = re.search(r"VmSize:\s+(\d+) kB", status.read_text())
    used = int(line[1]) * 1024 if line else 0
    return max(0, limit - used)
