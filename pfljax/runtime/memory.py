"""What a compiled program needs of a device's memory, and what is free."""

import math
import re
from pathlib import Path
from typing import Any

import jax


def needed_bytes(program: Any) -> int:
    """Bytes that one call of a compiled program holds on a device; 0 if not told.

    Results that take the place of donated arguments count once.
    """
    told = program.memory_analysis()
    if told is None:
        return 0
    own = told.output_size_in_bytes - told.alias_size_in_bytes
    return told.argument_size_in_bytes + told.temp_size_in_bytes + max(0, own)


def free_bytes(num_devices: int) -> float:
    """Free bytes of a device, the least of all; of CPU devices an equal share.

    Of several processes each looks at its own devices.
    """
    own = jax.local_devices()[:num_devices]
    stats = [device.memory_stats() for device in own]
    if all(stats):
        return min(s["bytes_limit"] - s["bytes_in_use"] for s in stats if s)
    meminfo = Path("/proc/meminfo")
    text = meminfo.read_text() if meminfo.exists() else ""
    found = re.search(r"MemAvailable:\s+(\d+) kB", text)
    return int(found[1]) * 1024 / len(own) if found else math.inf
