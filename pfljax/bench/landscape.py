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
from pfljax.bench.measure import check_counts, spread
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import Batch, ClientData, Examples, Task
from pfljax.landscape import line, plane, pooled, through
from pfljax.models import task as make_task
from pfljax.registry import find
from pfljax.runs.folder import write_json
from pfljax.runtime import files
from pfljax.simulate.flops import product_flops

SHAPE = (32, 32, 3)
CLASSES = 10
SEED = 0
HEAD = (
    "| landscape | clients, rows of each | points | points/s (min to max) | "
    "MFLOP a point | of peak | compile s | peer, points/s | ratio |",
    "|---|---|---|---|---|---|---|---|---|",
)


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
    rng = np.random.default_rng(SEED)
    total = case.clients * case.rows
    x: Any = rng.standard_normal((total, *SHAPE), np.float32)
    y: Any = rng.integers(0, CLASSES, total, np.int32)
    size = np.full(case.clients, case.rows, np.int32)
    offset = np.arange(case.clients, dtype=np.int32) * case.rows
    return ClientData(
        examples=Examples(x, y),
        offset=jnp.asarray(offset),
        size=jnp.asarray(size),
    )


def make_plane(case: Case) -> Callable[[], Any]:
    """The plane through three models."""
    model = task()
    data = pooled(rows_of(case))
    a, b, c = (model.init(jax.random.key(seed)) for seed in range(3))
    frame = through(a, b, c)
    axis = np.linspace(-0.2, 1.2, case.points)
    return lambda: plane(
        model,
        frame,
        data,
        alpha=axis,
        beta=axis,
    )


def make_lines(case: Case) -> Callable[[], Any]:
    """Lines between two models of every client, each on its own rows."""
    model = task()
    data = rows_of(case)
    keys_a, keys_b = jax.random.split(jax.random.key(SEED), (2, case.clients))
    a = jax.lax.map(model.init, keys_a)
    b = jax.lax.map(model.init, keys_b)
    t = np.linspace(0, 1, case.points)
    return lambda: line(
        model,
        a,
        b,
        data,
        t=t,
    )


PLANE = Case(
    make=make_plane,
    clients=1,
    rows=2000,
    points=21,
    axes=2,
)
LINES = Case(
    make=make_lines,
    clients=100,
    rows=100,
    points=21,
    axes=1,
)
CASES: dict[str, Case] = {"plane": PLANE, "lines": LINES}
# In place of a CPU's.
ACCELERATED = {"plane": PLANE._replace(rows=10_000, points=51)}


def run(
    names: Sequence[str],
    *,
    rounds: int | None = None,
    repeats: int = 3,
    methods: Sequence[str] = (),
    peer: str | None = None,
    out: str | Path = "runs/bench",
    scale: float = 1.0,
) -> str:
    """A Markdown table of what was measured; landscapes.json in `out`.

    Args:
      names: keys of `CASES`.
      rounds: points along an axis, in place of 21 (51 of a plane on an accelerator),
        for a shorter call: the time is linear in their number.
      repeats: timed calls, each followed by one of the peer.
      methods: none: a landscape is of models, whatever trained them.
      peer: a command, see `against.ask`; its rate is points a second.
      out: the folder to write to.
      scale: below 1 for fewer clients and rows, for tests.

    Raises:
      ValueError: for an unknown name, methods, no repeats, or a peer that fails.
    """
    check_counts(points=rounds, repeats=repeats)
    if methods:
        raise ValueError(
            f"landscapes have no methods, but {', '.join(methods)} was given; leave "
            "out --algorithm"
        )
    known = CASES if jax.default_backend() == "cpu" else CASES | ACCELERATED
    cases = {name: find("landscape", known, name) for name in names}
    if peer is not None:
        against.check(peer, [(name, "") for name in names])
    peak = cost.peak_flops()
    results = []
    for name, case in cases.items():
        case = _resized(case, rounds, scale)
        figures = _measure(name, case, repeats, peer, peak)
        results.append({"landscape": name, **figures})
        # Each at once: a long bench shows how far it is.
        print(_line(results[-1]), file=sys.stderr, flush=True)
    folder = files.make_folder(Path(out))
    written = {"machine": table.machine(peak), "results": results}
    write_json(folder / "landscapes.json", written)
    return "\n".join([*HEAD, *map(_line, results)])


def _resized(case: Case, points: int | None, scale: float) -> Case:
    return case._replace(
        clients=max(1, int(scale * case.clients)),
        rows=max(10, int(scale * case.rows)),
        points=points or case.points,
    )


def _measure(
    name: str,
    case: Case,
    repeats: int,
    peer: str | None,
    peak: float,
) -> dict[str, Any]:
    compute = case.make(case)
    first = _seconds(compute)  # with compilation
    seconds = []
    rates = []
    for _ in range(repeats):
        seconds.append(_seconds(compute))
        # In turn with the peer: both have the machine's good and bad moments.
        if peer is not None:
            rates.append(against.ask(peer, name, ""))
    points = spread([case.judged / s for s in seconds])
    flops = flops_of_a_point(case)
    figures: dict[str, Any] = {
        "clients": case.clients,
        "rows": case.rows,
        "points": case.judged,
        "points_per_second": points,
        "flops_per_point": flops,
        "peak_flops": peak,
        "share_of_peak": points["median"] * flops / peak,
        "compile_seconds": max(0.0, first - min(seconds)),
    }
    if rates:
        figures["peer"] = spread(rates)
        figures["ratio"] = points["median"] / figures["peer"]["median"]
    return figures


def _seconds(compute: Callable[[], Any]) -> float:
    start = time.perf_counter()
    compute()
    return time.perf_counter() - start


def flops_of_a_point(case: Case) -> int:
    """FLOPs of the products that judge one model on its rows."""
    model = task()
    params = shapes_of_model(model)
    row = Batch.of_rows(np.zeros((1, *SHAPE), np.float32))
    return case.rows * product_flops(model.predict, params, row)


def _line(figures: dict[str, Any]) -> str:
    rate = figures["points_per_second"]
    peer = figures.get("peer")
    cells = (
        figures["landscape"],
        f"{figures['clients']}, {figures['rows']}",
        str(figures["points"]),
        f"{rate['median']:.3g} ({rate['min']:.3g} to {rate['max']:.3g})",
        f"{figures['flops_per_point'] / 1e6:,.0f}",
        f"{figures['share_of_peak']:.0%}",
        f"{figures['compile_seconds']:.1f}",
        f"{peer['median']:.3g}" if peer else "",
        f"{figures['ratio']:.2f}" if peer else "",
    )
    return f"| {' | '.join(cells)} |"
