"""Results of the bench as text: the machine, and a table with a row for a workload."""

import os
import platform
from pathlib import Path
from typing import Any

import jax

from pfljax.runtime import devices

NOTE = (
    "Steps are local minibatch steps: the median over timed calls, and the range. "
    "MFLOP: the products of one step. MB: the memory of the program on a device."
)


def describe_machine(peak: float) -> dict[str, Any]:
    """The processor, devices and versions; `peak` is the measured FLOP/s."""
    return {
        "processor": _processor(),
        "cores": devices.cores(),
        "devices": [f"{d.platform}: {d.device_kind}" for d in jax.devices()],
        "jax": jax.__version__,
        "python": platform.python_version(),
        "peak_flops": peak,
        "compile_cache": bool(os.environ.get("JAX_COMPILATION_CACHE_DIR")),
    }


def _processor() -> str:
    """The name of the CPU, if the system knows it."""
    # Only Linux has this file; platform.processor() is often empty there.
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    for line in lines:
        if "model name" in line:
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def line(result: dict[str, Any]) -> str:
    """One line about one workload."""
    text = f"{result['workload']} {result['method']}: {_rate(result)} steps/s"
    return f"{text}, {result['ratio']:.2f} of the peer" if "ratio" in result else text


def show(machine: dict[str, Any], results: list[dict[str, Any]]) -> None:
    """Prints the table and the machine in 80 columns."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("workload", no_wrap=True)
    has_peer = any("ratio" in result for result in results)
    more = ("peer", "ratio") if has_peer else ("MFLOP", "MB")
    for column in ("steps/s", "of peak", "compile", *more):
        table.add_column(column, justify="right", no_wrap=True)
    for result in results:
        table.add_row(*_cells(result))
    console.print(table)
    console.print(NOTE)
    console.print(
        f"{machine['processor']}, {machine['cores']} cores, jax {machine['jax']}; "
        f"large f32 products reach {machine['peak_flops'] / 1e9:.0f} GFLOP/s."
    )


def _cells(result: dict[str, Any]) -> list[str]:
    flops = result["flops_per_step"]
    cells = [
        f"{result['workload']} {result['method']}",
        _rate(result),
        f"{100 * result['share_of_peak']:.0f} %" if flops else "-",
        f"{result['compile_seconds']:.0f} s",
    ]
    if "peer" in result:
        return [*cells, _number(result["peer"]["median"]), f"{result['ratio']:.2f}"]
    millions = _number(flops / 1e6) if flops else "-"
    return [*cells, millions, _number(result["device_bytes"] / 1e6)]


def _rate(result: dict[str, Any]) -> str:
    rate = result["steps_per_second"]
    least, most = _number(rate["min"]), _number(rate["max"])
    return f"{_number(rate['median'])} ({least} to {most})"


def _number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
