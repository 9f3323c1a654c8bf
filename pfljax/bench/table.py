"""What was measured, as text: the machine, a line a workload, a Markdown table."""

import os
import platform
from pathlib import Path
from typing import Any

import jax

COLUMNS = (
    "workload", "method", "s a round (min to max)", "steps/s", "useful", "MFLOP a step",
    "MFLOP by XLA", "of peak", "compile s", "process MB", "temp MB", "MB a step",
    "traffic MB a round",
)  # fmt: skip
NOTES = (
    "Steps are minibatch steps of data; a round's seconds are the median over timed "
    "calls. Useful: steps over the steps that lanes ran. MFLOP: of the products in one "
    "step of the method. MFLOP by XLA: of all operations in one SGD step on the loss. "
    "MB a step: bytes that XLA's program of that step reads and writes. Both are none "
    "for models with a loop, whose body XLA counts once. Of clients of several "
    "architectures all three are means over the clients. "
    "Process MB: the most since the process began."
)


def machine(peak: float) -> dict[str, Any]:
    """The processor, the devices and versions; `peak` FLOP/s as it was probed."""
    return {
        "processor": _processor(),
        "cores": _cores(),
        "devices": [f"{d.platform}: {d.device_kind}" for d in jax.devices()],
        "jax": jax.__version__,
        "python": platform.python_version(),
        "peak_flops": peak,
        "compile_cache": bool(os.environ.get("JAX_COMPILATION_CACHE_DIR")),
    }


def _processor() -> str:
    """The name of the CPU, where the system names it."""
    # Linux alone has this file; platform.processor() is often empty there.
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    for line in lines:
        if "model name" in line:
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cores() -> int:
    """Cores that this process may use."""
    # A container may allow fewer than the machine has; not all systems say so.
    allowed = getattr(os, "sched_getaffinity", None)
    if allowed is not None:
        return len(allowed(0))
    return os.cpu_count() or 1


def line(result: dict[str, Any]) -> str:
    """One line on one workload."""
    name = f"{result['workload']} {result['method']}"
    rate = _span(result["steps_per_second"])
    share = result["share_of_peak"]["median"]
    text = f"{name}: {rate} steps/s, {100 * share:.0f} % of the peak"
    if "peer" not in result:
        return text
    return f"{text}, {result['peer']['ratio']:.2f} of the peer"


def markdown(machine: dict[str, Any], results: list[dict[str, Any]]) -> str:
    """The machine, the table, and what stands beside it."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, results)]
    cached = "used" if machine["compile_cache"] else "not used"
    sentence = (
        f"{machine['processor']}, {machine['cores']} cores; "
        f"{', '.join(machine['devices'])}; jax {machine['jax']}, Python "
        f"{machine['python']}; f32 products of 2048 x 2048 reach "
        f"{machine['peak_flops'] / 1e9:.0f} GFLOP/s; compile cache {cached}."
    )
    lines = [sentence, "", *(f"| {' | '.join(row)} |" for row in rows), "", NOTES]
    more = (*_evaluations(results), *_peers(results), *_groups(results))
    return "\n".join([*lines, *more])


def _cells(result: dict[str, Any]) -> tuple[str, ...]:
    return (
        result["workload"],
        result["method"],
        _span(result["seconds_per_round"]),
        _short(result["steps_per_second"]["median"]),
        f"{result['useful']:.2f}",
        _short(result["flops_per_step"] / 1e6),
        _millions(result["xla_flops_per_step"]),
        f"{100 * result['share_of_peak']['median']:.1f} %",
        f"{result['compile_seconds']:.1f}",
        f"{result['process_megabytes']:.0f}",
        _millions(result["temp_bytes"]),
        _millions(result["bytes_per_step"]),
        _short(result["traffic_bytes_per_round"] / 1e6),
    )


def _millions(size: float | None) -> str:
    return "-" if size is None else _short(size / 1e6)


def _evaluations(results: list[dict[str, Any]]) -> list[str]:
    key = "steps_per_second_with_evaluations"
    return [
        f"{r['workload']} {r['method']}: {_span(r[key])} steps/s with a central "
        "evaluation every 10 rounds."
        for r in results
        if key in r
    ]


def _peers(results: list[dict[str, Any]]) -> list[str]:
    return [
        f"{r['workload']} {r['method']} against the peer, steps/s in turn: "
        f"{_list(r['peer']['ours'])}; peer {_list(r['peer']['theirs'])}; "
        f"ratio of medians {r['peer']['ratio']:.3f}."
        for r in results
        if "peer" in r
    ]


def _groups(results: list[dict[str, Any]]) -> list[str]:
    return [_of_groups(result) for result in results if "groups" in result]


def _of_groups(result: dict[str, Any]) -> str:
    """A round of all groups beside those of each alone, and what it took."""
    groups = result["groups"]
    medians = [spread["median"] for spread in groups["alone_seconds_per_round"]]
    # The rounds' own seconds stand in the table.
    return (
        f"{result['workload']} {result['method']}: {len(medians)} groups, alone "
        f"{' + '.join(map(_short, medians))} s a round, in sum "
        f"{_span(groups['sum_seconds_per_round'])}; together "
        f"{_span(groups['ratio'])} times the sum, in turn. Without a cache the rounds "
        f"were compiled in {result['compile_seconds']:.1f} s, and the first state made "
        f"in {groups['first_state_seconds']:.1f} s. The program holds "
        f"{_millions(groups['device_bytes'])} MB a device, the process had "
        f"{_millions(result['round_peak_bytes'])} MB at the most in a round."
    )


def _list(values: list[float]) -> str:
    return ", ".join(map(_short, values))


def _span(spread: dict[str, float]) -> str:
    median = _short(spread["median"])
    return f"{median} ({_short(spread['min'])} to {_short(spread['max'])})"


def _short(value: float) -> str:
    """Four digits, or all that stand before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
