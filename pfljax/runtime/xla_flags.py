"""Asks XLA whether it can read `XLA_FLAGS`: else it ends the process, in words of C++.

In a process of its own, for about half a second, and only where the variable is set.
"""

import os
import re
import subprocess
import sys

# XLA reads its flags for the first client; one of the CPU needs no device.
PROBE = "from jaxlib import xla_client; xla_client.make_cpu_client()"
# Flags that were read once: processes that this one starts need not ask again.
READ = "PFLJAX_XLA_FLAGS_READ"
DEVICES = "JAX_NUM_CPU_DEVICES"  # JAX takes -2 for a number, and fails late at 0
COMPLAINT = re.compile(r"^[EF]\d{4} .*?\] (.*?)\.?$", re.MULTILINE)


def check() -> None:
    """Refuses to begin with flags that XLA cannot read, or devices without a number.

    Raises:
      ValueError: with the flags, and what XLA says of them; or with the number.
    """
    count = os.environ.get(DEVICES)
    # -1 is JAX's own word for none said.
    if count and count != "-1" and not (count.isdecimal() and int(count) > 0):
        raise ValueError(f"{DEVICES} is {count!r}; expected a number from 1 on")
    flags = os.environ.get("XLA_FLAGS", "")
    if not flags.strip() or flags == os.environ.get(READ):
        return
    if complaint := _complaint(flags):
        raise ValueError(
            f"XLA_FLAGS is {flags!r}, which XLA cannot read ({complaint}); mend it, "
            "or unset it"
        )
    os.environ[READ] = flags


def _complaint(flags: str) -> str | None:
    """What XLA says of the flags as it ends a process; None where it takes them."""
    probe = subprocess.run(
        [sys.executable, "-c", PROBE],
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        errors="replace",
    )
    complaint = COMPLAINT.search(probe.stderr)
    # An end for another reason tells nothing of the flags.
    return complaint[1] if probe.returncode and complaint else None
