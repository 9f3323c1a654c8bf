"""Lines between the personal models of all pairs of clients of a finished run."""

from collections.abc import Iterable
from operator import itemgetter

import jax
import numpy as np

from pfljax.core.types import Params
from pfljax.landscape.barriers import barrier
from pfljax.landscape.figures import draw_matrices
from pfljax.landscape.finished import Finished
from pfljax.landscape.kinds import blocks
from pfljax.landscape.kinds.ends import align
from pfljax.landscape.kinds.record import (
    METRICS,
    Landscape,
    choose_rows,
    describe_rows,
    find_finite,
    place_points,
)
from pfljax.landscape.lines import Line
from pfljax.landscape.pairs import pair_lines
from pfljax.report.frames import make_frame
from pfljax.runs.landscape_options import LandscapeOptions

MOST = 200  # clients in a matrix of all pairs: 19,900 lines
SAMPLE = 60  # clients of a larger federation
BLOCK = 200  # pairs; at most twice as many models lie in memory on the device
PARAMETERS = ("cosine", "distance")
DIAGONAL = {"cosine": 1.0}  # of a model with itself; 0 for the others


def compute_pairs(
    run: Finished, options: LandscapeOptions, store: blocks.Store
) -> Landscape:
    """Lines between the personal models of all pairs of clients.

    Pairs of clients with different architectures have none. Of more than `MOST` clients
    a sample is taken, and the text and the file name it.

    Raises:
      ValueError: there are no two clients of one architecture.
    """
    chosen, parts = _choose_clients(run, options)
    t = place_points(options, 0, 0.5, 1)
    arrays = _evaluate_parts(parts, options, t, store)
    columns = _describe_pairs(arrays, t)
    rows = describe_rows(run, options).replace("each client's own", "both clients'")
    text = f"{_introduce(run, chosen, parts)}{rows}; {_average(columns)}"
    if options.align:
        found_before = _evaluate_parts(parts, options.replace(align=False), t, store)
        before = _average(_describe_pairs(found_before, t))
        text += f"; before the units were aligned: {before}"
    shown = [*(f"{name} barrier" for name in METRICS), "cosine"]
    result = _describe(chosen.ids, arrays, columns, shown)
    along = {"t": t} | {f"line/{name}": arrays[name] for name in METRICS}
    arrays = result.arrays | along
    return result._replace(arrays=arrays, text=text, facts=f"Each line has {rows}.")


def _choose_clients(
    run: Finished, options: LandscapeOptions
) -> tuple[Finished, list[Finished]]:
    """The run with all its clients or a sample of many, and those of each architecture.

    Raises:
      ValueError: there are no two clients of one architecture.
    """
    total = len(run.ids)
    chosen = run
    if total > MOST:
        rng = np.random.default_rng(options.seed)
        chosen = run.take(np.sort(rng.choice(total, SAMPLE, replace=False)))
    parts = [part for part in chosen.architectures() if len(part.ids) > 1]
    if not parts:
        raise ValueError(
            f"{run.path} has no two clients of one architecture, and there is no line "
            "between two architectures; choose the kind curvature, or another run"
        )
    return chosen, parts


def _introduce(run: Finished, chosen: Finished, parts: list[Finished]) -> str:
    """The first words of the text: how many pairs, and of whom."""
    pairs = sum(len(part.ids) * (len(part.ids) - 1) // 2 for part in parts)
    whose = f"{len(run.ids)} clients'"
    if chosen is not run:
        whose = f"{len(chosen.ids)} of {whose} (a sample: {chosen.ids.tolist()})"
    within = "" if len(parts) == 1 else f"within {len(parts)} architectures, "
    return f"{run.about}: {pairs} pairs of {whose} personal models, {within}"


def _describe(
    ids: np.ndarray,
    arrays: dict[str, np.ndarray],
    columns: dict[str, np.ndarray],
    shown: list[str],
) -> Landscape:
    """The landscape of pairs of these clients, without its text."""
    numbers = {name: arrays[name] for name in ("client", "other")}
    squares = {
        name: _make_square(ids, numbers, values, DIAGONAL.get(name, 0.0))
        for name, values in columns.items()
    }
    figure = draw_matrices({name: squares[name] for name in shown}, ids)
    return Landscape(
        arrays={"ids": ids, **squares, **numbers},
        table=make_frame(numbers | columns),
        figures={"": figure},
        text="",
    )


def _evaluate_parts(
    parts: list[Finished], options: LandscapeOptions, t: np.ndarray, store: blocks.Store
) -> dict[str, np.ndarray]:
    """All pairs of clients, of those of each architecture: f[P, T] and f[P]."""
    dicts = [_evaluate(part, options, t, store) for part in parts]
    return {name: np.concatenate([each[name] for each in dicts]) for name in dicts[0]}


def _evaluate(
    part: Finished, options: LandscapeOptions, t: np.ndarray, store: blocks.Store
) -> dict[str, np.ndarray]:
    """All pairs of clients of one architecture, in blocks: metrics [P, T], ..."""
    models = _gather(block.models() for block in part.blocks(blocks.CLIENTS))
    if options.align:
        models = align(part, models)
    find_rows = choose_rows(part, options.rows)
    i, j = np.triu_indices(len(part.ids), 1)
    cut = blocks.cut(len(i), BLOCK)
    # As many models in each block, for one program.
    number = max(len(np.union1d(i[pairs], j[pairs])) for pairs in cut)

    def evaluate(pairs: np.ndarray) -> dict[str, np.ndarray]:
        used = np.union1d(i[pairs], j[pairs])
        others = np.setdiff1d(np.arange(len(part.ids)), used)
        ids = np.union1d(used, others[: number - len(used)])
        rows = find_rows(part.take(part.ids[ids]))
        lines = pair_lines(
            part.task,
            jax.tree.map(itemgetter(ids), models),
            rows.data,
            np.searchsorted(ids, i[pairs]),
            np.searchsorted(ids, j[pairs]),
            t=t,
            train=rows.train,
            batch_size=part.batch_size,
        )
        numbers = {"client": part.ids[i[pairs]], "other": part.ids[j[pairs]]}
        beside = {name: getattr(lines, name) for name in PARAMETERS}
        return numbers | lines.line.metrics | beside

    name = f"pairs of {len(part.ids)} clients from {part.ids[0]} on"
    if options.align:
        name = f"aligned {name}"
    return blocks.compute(store, name, cut, evaluate)


def _gather(models: Iterable[Params]) -> Params:
    """The models of all blocks, stacked in memory of the host."""
    on_host = [jax.device_get(each) for each in models]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *on_host)


def _describe_pairs(
    arrays: dict[str, np.ndarray], t: np.ndarray
) -> dict[str, np.ndarray]:
    """The numbers of each pair, f[P]."""
    line = Line(t, {name: arrays[name] for name in METRICS})
    barriers = {f"{name} barrier": barrier(line, name) for name in METRICS}
    return barriers | {name: arrays[name] for name in PARAMETERS}


def _make_square(
    ids: np.ndarray, numbers: dict[str, np.ndarray], values: np.ndarray, own: float
) -> np.ndarray:
    """A matrix [K, K] of values [P] of pairs; NaN where there is no line."""
    square = np.full((len(ids), len(ids)), np.nan)
    np.fill_diagonal(square, own)
    i, j = (np.searchsorted(ids, numbers[name]) for name in ("client", "other"))
    square[i, j] = values
    square[j, i] = values
    return square


def _average(columns: dict[str, np.ndarray]) -> str:
    """Means over pairs, in words; those with a diverged model are only counted."""
    finite = find_finite(columns)
    means = [
        f"{name} {values[finite].mean():.4f}"
        for name, values in columns.items()
        if finite.any()
    ]
    return (
        f"means over pairs, {finite.sum()} of {len(finite)} finite: "
        f"{', '.join(means) or 'none'}"
    )
