"""The memory of devices: needed by a compiled program, free, and in use."""

import math
import re
from pathlib import Path
from typing import Any

import jax


def needed_bytes(program: Any) -> int:
    """Bytes that one call of a compiled program holds on a device; 0 if unknown.

    Donated arguments and the results in their place count once.
    """
    sizes = program.memory_analysis()
    if sizes is None:
        return 0
    # A donated argument's memory becomes a result's: the alias counts as argument.
    new_results = max(0, sizes.output_size_in_bytes - sizes.alias_size_in_bytes)
    return sizes.argument_size_in_bytes + sizes.temp_size_in_bytes + new_results


def free_bytes(num_devices: int) -> float:
    """The least free bytes of this process's devices; CPU devices share equally."""
    devices = jax.local_devices()[:num_devices]
    stats = [device.memory_stats() for device in devices]
    if all(stats):
        return min(s["bytes_limit"] - s["bytes_in_use"] for s in stats if s)
    # CPU devices have no statistics, and share the memory of the machine.
    return _available_memory() / len(devices)


def peak_bytes() -> int | None:
    """The peak memory of this process; None if the system is not Linux."""
    return _read_bytes("/proc/self/status", "VmHWM")


def highest() -> dict[str, Any]:
    """The peak memory of this process: "peak_bytes" of "peak_of".

    "peak_of" is the "device" with the highest peak if devices keep count, else the
    "process". The dict is empty if neither is known.
    """
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    key = "peak_bytes_in_use"
    peaks = [of_device[key] for of_device in stats if key in of_device]
    if peaks:
        return {"peak_bytes": max(peaks), "peak_of": "device"}
    held = peak_bytes()
    return {} if held is None else {"peak_bytes": held, "peak_of": "process"}


def _available_memory() -> float:
    """The bytes that Linux calls available; infinity on other systems."""
    available = _read_bytes("/proc/meminfo", "MemAvailable")
    return math.inf if available is None else available


def _read_bytes(path: str, name: str) -> int | None:
    """The bytes in a line of this name in a file of Linux; None without the file."""
    file = Path(path)
    if not file.exists():
        return None
    line = re.search(rf"{name}:\s+(\d+) kB", file.read_text())
    return int(line[1]) * 1024 if line else None
