"""What `bench.lowered` found, as Markdown tables."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pfljax.bench.roofline import DEVICES

GB = 1e9
MB = 1e6
NOTES = (
    "Not measured on a device. A step is of one client and one minibatch, by FedAvg. "
    "MFLOP: its products. Least MB: parameters, gradients and rows once, and what the "
    "forward pass keeps, each read and written. XLA's MB, kernels and temporary memory "
    "are a proxy: the program lowered for a TPU, under one vmap, compiled for a CPU. "
    "Kernels: fusions, products and others in the loop over steps, whatever the width."
)


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """All tables, and what stands beside them."""
    tables = [
        _work(results),
        _memory(results),
        _bounds(results),
        _kernels(results),
        _devices(),
    ]
    return "\n\n".join([*tables, NOTES])


def _work(results: Sequence[dict[str, Any]]) -> str:
    columns = (
        "model", "MB of parameters", "rows", "MFLOP", "least MB", "in bfloat16",
        "convolutions as", "MB by XLA", "kernels", "of these products",
        "StableHLO operations, CUDA, TPU",
    )  # fmt: skip
    rows = []
    for result in results:
        least = [
            result["precisions"][p]["least_bytes"] for p in ("float32", "bfloat16")
        ]
        for form, found in result["forms"].items():
            kernels = found["kernels"]
            ops = result["lowered_ops"].values() if form != "groups" else ["", ""]
            rows.append(
                (
                    _name(result),
                    _short(result["parameter_bytes"] / MB),
                    result["batch_size"],
                    _short(result["flops"] / MB),
                    *(_short(count / MB) for count in least),
                    form,
                    _short(found["xla_bytes"] / MB),
                    sum(kernels.values()),
                    _products(kernels),
                    ", ".join(map(str, ops)).strip(", "),
                )
            )
    return _table(columns, rows)


def _name(result: dict[str, Any]) -> str:
    return f"{result['workload']}, {result['model']}"


def _products(kernels: dict[str, int]) -> int:
    return kernels.get("dot", 0) + kernels.get("convolution", 0)


def _memory(results: Sequence[dict[str, Any]]) -> str:
    columns = ("model", "convolutions as")
    columns += tuple(f"GB for {width} clients" for width in _widths(results))
    columns += tuple(f"clients that fit {device.name}" for device in DEVICES)
    rows = []
    for result in results:
        for form, found in result["forms"].items():
            held = [_short(nbytes / GB) for nbytes in found["held"].values()]
            most = [_count(fitting(found["held"], d.memory)) for d in DEVICES]
            rows.append((_name(result), form, *held, *most))
    return _table(columns, rows)


def _widths(results: Sequence[dict[str, Any]]) -> list[int]:
    """Those that were compiled."""
    first = next(iter(results[0]["forms"].values()))
    return list(map(int, first["held"]))


def fitting(held: dict[str, int], memory: float) -> int:
    """The most clients under one vmap in so many bytes, rows and states apart.

    On the lines between the widths that were compiled, `held` bytes by width; beyond
    the last in proportion.
    """
    widths = [0, *map(int, held)]
    nbytes = [0, *held.values()]
    if memory > nbytes[-1]:
        return int(memory / nbytes[-1] * widths[-1])
    return int(np.interp(memory, nbytes, widths))


def _bounds(results: Sequence[dict[str, Any]]) -> str:
    columns = ("model", "precision", "FLOP a byte")
    columns += tuple(f"{device.name}: steps/s at most" for device in DEVICES)
    rows = []
    for result in results:
        for precision, found in result["precisions"].items():
            cells = [_bound(found["bounds"][device.name]) for device in DEVICES]
            intensity = _short(found["intensity"])
            rows.append((_name(result), precision, intensity, *cells))
    return _table(columns, rows)


def _bound(found: dict[str, Any]) -> str:
    teraflops = _short(found["flops_a_second"] / 1e12)
    cause = "memory" if found["by_memory"] else "products"
    return f"{_count(found['steps_a_second'])} ({teraflops} TFLOP/s, {cause})"


def _kernels(results: Sequence[dict[str, Any]]) -> str:
    """How long a kernel is at the bound: below what a start takes, devices wait."""
    device = DEVICES[0]
    columns = ("model", "convolutions as")
    columns += tuple(
        f"us a kernel of {width} clients, {device.name}, float32"
        for width in _widths(results)
    )
    rows = []
    for result in results:
        bounds = result["precisions"]["float32"]["bounds"]
        rate = bounds[device.name]["steps_a_second"]
        for form, found in result["forms"].items():
            kernels = sum(found["kernels"].values())
            times = [_short(1e6 * n / rate / kernels) for n in _widths(results)]
            rows.append((_name(result), form, *times))
    return _table(columns, rows)


def _devices() -> str:
    columns = ("device", "TFLOP/s float32", "tf32", "bfloat16", "TB/s", "GB", "source")
    rows = []
    for device in DEVICES:
        peaks = [_short(peak / 1e12) for peak in device.peaks.values()]
        figures = (_short(device.bandwidth / 1e12), _short(device.memory / GB))
        rows.append((device.name, *peaks, *figures, device.source))
    return _table(columns, rows)


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _short(value: float) -> str:
    """Three digits, or all that stand before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _count(value: float) -> str:
    """A large number by its first two digits: no bound is known better."""
    digits = max(0, len(str(int(value))) - 2)
    return f"{int(value) // 10**digits * 10**digits:,}"
