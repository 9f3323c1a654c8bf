"""How fast landscapes are: a plane of TwoCNN, and the lines of many clients' models.

Rows and models are random numbers, of the shapes of CIFAR-10: only the time counts.
"""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import models
from pfljax.bench import against, cost, table
from pfljax.bench.flops import product_flops
from pfljax.bench.measure import spread
from pfljax.core.types import Batch, ClientData, Examples, Task
from pfljax.landscape import line, plane, pooled, through
from pfljax.models import task as make_task
from pfljax.registry import find
from pfljax.runs.folder import write_json

SHAPE, CLASSES, SEED = (32, 32, 3), 10, 0


class Case(NamedTuple):
    """A landscape: how many clients, rows of each, and points along an axis."""

    make: Callable[["Case"], Callable[[], Any]]  # a function that computes it
    clients: int
    rows: int
    points: int
    axes: int

    @property
    def judged(self) -> int:
        """Points: models that are judged on a client's rows."""
        return self.clients * self.points**self.axes


def task() -> Task:
    """TwoCNN, 2,156,490 numbers."""
    return make_task(models.twocnn(CLASSES), SHAPE)


def rows_of(case: Case) -> ClientData:
    """The rows of all clients."""
    rng, total = np.random.default_rng(SEED), case.clients * case.rows
    x: Any = rng.standard_normal((total, *SHAPE), np.float32)
    y: Any = rng.integers(0, CLASSES, total, np.int32)
    size = np.full(case.clients, case.rows, np.int32)
    offset = np.arange(case.clients, dtype=np.int32) * case.rows
    return ClientData(Examples(x, y), jnp.asarray(offset), jnp.asarray(size))


def make_plane(case: Case) -> Callable[[], Any]:
    """The plane through three models."""
    model, data = task(), pooled(rows_of(case))
    frame = through(*(model.init(jax.random.key(seed)) for seed in range(3)))
    axis = np.linspace(-0.2, 1.2, case.points)
    return lambda: plane(model, frame, data, alpha=axis, beta=axis)


def make_lines(case: Case) -> Callable[[], Any]:
    """Lines between two models of every client, each on its own rows."""
    model, data = task(), rows_of(case)
    keys = jax.random.split(jax.random.key(SEED), (2, case.clients))
    a, b = (jax.lax.map(model.init, k) for k in keys)
    t = np.linspace(0, 1, case.points)
    return lambda: line(model, a, b, data, t=t)


CASES: dict[str, Case] = {
    "plane": Case(make_plane, 1, 2000, 21, 2),
    "lines": Case(make_lines, 100, 100, 21, 1),
}
ACCELERATED = {"plane": Case(make_plane, 1, 10_000, 51, 2)}  # in place of a CPU's


def run(
    names: Sequence[str],
    *,
    points: int | None = None,
    repeats: int = 3,
    peer: str | None = None,
    out: str | Path = "runs/bench",
    scale: float = 1.0,
) -> str:
    """A Markdown table of what was measured; landscapes.json in `out`.

    Args:
      names: keys of `CASES`.
      points: along an axis, in place of 21 (51 of a plane on an accelerator), for a
        shorter call: the time is linear in their number.
      repeats: timed calls, each followed by one of the peer.
      peer: a command, see `against.ask`; its rate is points a second.
      out: the folder to write to.
      scale: below 1 for fewer clients and rows, for tests.

    Raises:
      ValueError: for an unknown name, no repeats, or a peer that fails.
    """
    if min(repeats, points or 2) < 1:
        raise ValueError(f"repeats is {repeats}, points {points}; expected 1 or more")
    known = CASES if jax.default_backend() == "cpu" else CASES | ACCELERATED
    cases = {name: find("landscape", known, name) for name in names}
    if peer is not None:
        against.check(peer, [(name, "") for name in names])
    peak = cost.peak_flops()
    found = []
    for name, case in cases.items():
        case = case._replace(
            clients=max(1, int(scale * case.clients)),
            rows=max(10, int(scale * case.rows)),
            points=points or case.points,
        )
        found.append({"landscape": name, **_measure(name, case, repeats, peer, peak)})
        print(_line(found[-1]), file=sys.stderr, flush=True)
    machine = table.machine(peak)
    Path(out).mkdir(parents=True, exist_ok=True)
    write_json(Path(out) / "landscapes.json", {"machine": machine, "results": found})
    return "\n".join([*HEAD, *map(_line, found)])


def _measure(
    name: str, case: Case, repeats: int, peer: str | None, peak: float
) -> dict[str, Any]:
    compute = case.make(case)
    start = time.perf_counter()
    compute()
    first, seconds, rates = time.perf_counter() - start, [], []
    for _ in range(repeats):
        start = time.perf_counter()
        compute()
        seconds.append(time.perf_counter() - start)
        if peer is not None:
            rates.append(against.ask(peer, name, ""))
    points = spread([case.judged / s for s in seconds])
    flops = flops_of_a_point(case)
    told: dict[str, Any] = {
        "clients": case.clients, "rows": case.rows, "points": case.judged,
        "points_per_second": points, "flops_per_point": flops, "peak_flops": peak,
        "share_of_peak": points["median"] * flops / peak,
        "compile_seconds": max(0.0, first - min(seconds)),
    }  # fmt: skip
    if rates:
        told["peer"] = spread(rates)
        told["ratio"] = points["median"] / told["peer"]["median"]
    return told


def flops_of_a_point(case: Case) -> int:
    """FLOPs of the products that judge one model on its rows."""
    model = task()
    params = jax.eval_shape(model.init, jax.eval_shape(jax.random.key, 0))
    row = Batch.of_rows(np.zeros((1, *SHAPE), np.float32))
    return case.rows * product_flops(model.predict, params, row)


HEAD = (
    "| landscape | clients, rows of each | points | points/s (min to max) | "
    "MFLOP a point | of peak | compile s | peer, points/s | ratio |",
    "|---|---|---|---|---|---|---|---|---|",
)


def _line(found: dict[str, Any]) -> str:
    rate, peer = found["points_per_second"], found.get("peer")
    theirs = f"{peer['median']:.3g}" if peer else ""
    ratio = f"{found['ratio']:.2f}" if peer else ""
    cells = (
        found["landscape"], f"{found['clients']}, {found['rows']}", found["points"],
        f"{rate['median']:.3g} ({rate['min']:.3g} to {rate['max']:.3g})",
        f"{found['flops_per_point'] / 1e6:,.0f}", f"{found['share_of_peak']:.0%}",
        f"{found['compile_seconds']:.1f}", theirs, ratio,
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"
