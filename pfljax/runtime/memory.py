"""What a compiled program needs of a device's memory, what is free, what is held."""

import math
import re
from pathlib import Path
from typing import Any

import jax


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
    return _available_memory() / len(devices)


def peak_bytes() -> int | None:
    """The most that this process has ever held; None where it is not Linux."""
    return _told_by("/proc/self/status", "VmHWM")


def highest() -> dict[str, Any]:
    """The most held since this process began, "peak_bytes", and of what, "peak_of".

    That is the fullest "device" where devices keep count, else the "process"; empty
    where neither is known.
    """
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    key = "peak_bytes_in_use"
    peaks = [of_device[key] for of_device in stats if key in of_device]
    if peaks:
        return {"peak_bytes": max(peaks), "peak_of": "device"}
    held = peak_bytes()
    return {} if held is None else {"peak_bytes": held, "peak_of": "process"}


def _available_memory() -> float:
    """Bytes that Linux calls available; infinity elsewhere."""
    available = _told_by("/proc/meminfo", "MemAvailable")
    return math.inf if available is None else available


def _told_by(path: str, name: str) -> int | None:
    """Bytes in the line of this name of a file of Linux's; None where there is none."""
    file = Path(path)
    if not file.exists():
        return None
    line = re.search(rf"{name}:\s+(\d+) kB", file.read_text())
    return int(line[1]) * 1024 if line else None
