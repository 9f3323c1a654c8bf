"""What a compiled program needs of a device's memory, and what is free."""

import math
import re
from pathlib import Path
from typing import Any

import jax

from pfljax.runtime import limits


def needed_bytes(program: Any) -> int:
    """Bytes that one call of a compiled program holds on a device; 0 if unknown.

    Results that take the place of donated arguments count once.
    """
    sizes = program.memory_analysis()
    if sizes is None:
        return 0
    # A donated argument's memory becomes a result's: the alias counts as argument.
    new_results = max(0, sizes.output_size_in_bytes - sizes.alias_size_in_bytes)
    return sizes.argument_size_in_bytes + sizes.temp_size_in_bytes + new_results


def free_bytes(num_devices: int) -> float:
    """Free bytes of a device, the least of all; of CPU devices an equal share.

    Of several processes each looks at its own devices.
    """
    devices = jax.local_devices()[:num_devices]
    stats = [device.memory_stats() for device in devices]
    if all(stats):
        return min(s["bytes_limit"] - s["bytes_in_use"] for s in stats if s)
    # CPU devices have no statistics, and share the memory of the machine.
    return min(_available_memory(), limits.address_space()) / len(devices)


def _available_memory() -> float:
    """Bytes that Linux calls available; infinity elsewhere."""
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return math.inf
    line = re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text())
    return int(line[1]) * 1024 if line else math.inf
