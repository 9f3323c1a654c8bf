"""Lines between the personal models of all pairs of clients of a finished run."""

import numpy as np

from pfljax.landscape.barriers import barrier
from pfljax.landscape.figures import draw_matrices
from pfljax.landscape.finished import Finished
from pfljax.landscape.kinds import blocks, record
from pfljax.landscape.kinds.ends import align
from pfljax.landscape.lines import Line
from pfljax.landscape.pairs import pair_lines
from pfljax.landscape.similarity import disagreement, linear_cka
from pfljax.report.frames import make_frame
from pfljax.runs.landscape_options import LandscapeOptions

MOST = 200  # clients in a matrix of all pairs: 19,900 lines
SAMPLE = 60  # clients of a larger federation
BLOCK = 200  # pairs
NUMBERS = ("client", "other")
PARAMETERS = ("cosine", "distance")
SIMILARITY = {"disagreement": disagreement, "CKA": linear_cka}
DIAGONAL = {"cosine": 1.0, "CKA": 1.0}  # of a model with itself; 0 for the others


def compute_pairs(
    run: Finished, options: LandscapeOptions, store: blocks.Store
) -> record.Landscape:
    """Lines between the personal models of all pairs of clients.

    Pairs of clients with different architectures have none. Of more than `MOST` clients
    a sample is taken, and the text and the file name it.

    Raises:
      ValueError: there are no two clients of one architecture.
    """
    chosen, parts = _choose_clients(run, options)
    t = record.place_on_line(options)
    arrays, columns = _evaluate_parts(parts, options, t, store)
    rows = f"{record.describe_line(t)}, {record.describe_rows(run, options)}"
    rows = rows.replace("each client's own", "both clients'")
    text = f"{_introduce(run, chosen, parts)}{rows}; {_average(columns)}"
    if options.align:
        _, before = _evaluate_parts(parts, options.replace(align=False), t, store)
        text += f"; before the units were aligned: {_average(before)}"
    numbers = {name: arrays[name] for name in NUMBERS}
    squares = {
        name: _make_square(chosen.ids, numbers, values, DIAGONAL.get(name, 0.0))
        for name, values in columns.items()
    }
    shown = {"": [f"{name} barrier" for name in record.METRICS] + ["cosine"]}
    shown["_similarity"] = list(SIMILARITY)
    along = {"t": t} | {f"line/{name}": arrays[name] for name in record.METRICS}
    return record.Landscape(
        arrays={"ids": chosen.ids, **squares, **numbers, **along},
        table=make_frame(numbers | columns),
        figures={
            suffix: draw_matrices({name: squares[name] for name in names}, chosen.ids)
            for suffix, names in shown.items()
        },
        text=text,
        facts=f"Each line has {rows}.",
    )


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


def _evaluate_parts(
    parts: list[Finished], options: LandscapeOptions, t: np.ndarray, store: blocks.Store
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """All pairs within each architecture: their arrays f[P, T], f[P], and columns."""
    dicts = [_evaluate(part, options, t, store) for part in parts]
    arrays = {name: np.concatenate([each[name] for each in dicts]) for name in dicts[0]}
    line = Line(t, {name: arrays[name] for name in record.METRICS})
    columns = {f"{name} barrier": barrier(line, name) for name in record.METRICS}
    return arrays, columns | {name: arrays[name] for name in (*PARAMETERS, *SIMILARITY)}


def _evaluate(
    part: Finished, options: LandscapeOptions, t: np.ndarray, store: blocks.Store
) -> dict[str, np.ndarray]:
    """All pairs of clients of one architecture, in blocks: metrics [P, T], ..."""
    models = part.models()
    if options.align:
        models = align(part, models)
    rows = record.choose_rows(part, options.rows)(part)
    given = {"t": t, "train": rows.train, "batch_size": part.batch_size}
    i, j = np.triu_indices(len(part.ids), 1)

    def evaluate(pairs: np.ndarray) -> dict[str, np.ndarray]:
        ends = i[pairs], j[pairs]
        lines = pair_lines(part.task, models, rows.data, *ends, **given)
        beside = {name: getattr(lines, name) for name in PARAMETERS}
        return lines.line.metrics | beside

    def compare(_: None) -> dict[str, np.ndarray]:
        given = part.task, models, rows.data
        return {name: call(*given)[i, j] for name, call in SIMILARITY.items()}

    name = f"pairs of {len(part.ids)} clients from {part.ids[0]} on"
    if options.align:
        name = f"aligned {name}"
    found = blocks.compute(store, name, blocks.cut(len(i), BLOCK), evaluate)
    similar = blocks.compute(store, f"similarity of {name}", [None], compare)
    return {"client": part.ids[i], "other": part.ids[j], **found, **similar}


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
    finite = record.find_finite(columns)
    means = [
        f"{name} {values[finite].mean():.4f}"
        for name, values in columns.items()
        if finite.any()
    ]
    return (
        f"means over pairs, {finite.sum()} of {len(finite)} finite: "
        f"{', '.join(means) or 'none'}"
    )
