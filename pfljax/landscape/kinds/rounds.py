"""Models of a finished run over its kept rounds: how they are connected, and where."""

import jax
import numpy as np

from pfljax.landscape.barriers import barrier
from pfljax.landscape.figures import draw_rounds
from pfljax.landscape.finished import Finished, find_clients
from pfljax.landscape.frames import cover, principal, project
from pfljax.landscape.kinds import blocks, record
from pfljax.landscape.kinds.surfaces import evaluate_plane
from pfljax.landscape.lines import line
from pfljax.landscape.pairs import pair_lines
from pfljax.landscape.plane_figures import draw_planes
from pfljax.landscape.planes import evaluate_points
from pfljax.report.frames import make_frame
from pfljax.runs.landscape_options import LandscapeOptions

CONNECTED = 0.01  # barriers of the accuracy up to this do not count
MOST = 10  # clients, unless `through` names others
SERVER, CLIENTS = "to the server", "between clients"


def compute_over_rounds(
    run: Finished, options: LandscapeOptions, store: blocks.Store
) -> record.Landscape:
    """Barriers between personal models, and from the server's model to each, by round.

    A checkpoint holds the states of all clients, so every kept round has their models.
    """
    rounds = run.rounds()
    ids = _choose_clients(run, options)
    chosen = run.take(ids)
    t = record.place_on_line(options)

    def evaluate(round_: int) -> dict[str, np.ndarray]:
        return _evaluate(chosen.at(round_), options, t)

    found = blocks.compute(store, "rounds", rounds, evaluate)
    columns = {name: np.nanmean(values, axis=1) for name, values in found.items()}
    last = [f"{name} {values[-1]:.4f}" for name, values in columns.items()]
    series = {name: {} for name in record.METRICS}
    for name in sorted(found, reverse=True):  # to the server, then between clients
        metric, is_barrier, which = name.partition(" barrier ")
        if is_barrier:
            series[metric][which] = found[name]
    who = f"clients {', '.join(map(str, ids))}"
    rows = f"{record.describe_line(t)}, {record.describe_rows(run, options)}"
    return record.Landscape(
        arrays={"round": np.asarray(rounds), "ids": ids, **found},
        table=make_frame({"round": rounds, **columns}),
        figures={"": draw_rounds(rounds, series)},
        text=f"{run.about}: the personal models of {who} at {len(rounds)} rounds, "
        f"{rows}; means at the last one: {', '.join(last)}",
        facts=f"Of {who}; each line has {rows}.",
    )


def _choose_clients(run: Finished, options: LandscapeOptions) -> np.ndarray:
    """The clients that `through` names, or some at equal distances."""
    count = len(run.ids)
    named = find_clients(options.through, count)
    ids = np.unique(named or np.linspace(0, count - 1, min(MOST, count)).astype(int))
    if len(ids) < 2:
        raise ValueError("through names one client; expected two or more, or none")
    return ids


def _evaluate(
    past: Finished, options: LandscapeOptions, t: np.ndarray
) -> dict[str, np.ndarray]:
    """Barriers and distances at a round, f[1, P] or f[1, C]."""
    models = past.models()
    rows = record.choose_rows(past, options.rows)(past)
    i, j = np.triu_indices(len(past.ids), 1)
    given = {"t": t, "train": rows.train, "batch_size": past.batch_size}
    lines = pair_lines(past.task, models, rows.data, i, j, **given)
    by_kind = {CLIENTS: lines.line}
    setting = past.architecture.setting.algorithm
    if setting.server_model is not None and setting.personal is not None:
        by_kind[SERVER] = line(past.task, past.server(), models, rows.data, **given)
    barriers = {
        f"{name} barrier {which}": barrier(found, name)[None]
        for which, found in by_kind.items()
        for name in record.METRICS
    }
    return barriers | {f"distance {CLIENTS}": lines.distance[None]}


def compute_training(
    run: Finished, options: LandscapeOptions, store: blocks.Store
) -> record.Landscape:
    """Barriers between the server's model at each kept round and the last, and a plane.

    Linear mode connectivity along training (Frankle et al., ICML 2020). The plane is
    that of the trajectory's two principal directions; a round's model lies beside it,
    and the text says how far its loss is from that of its mark.
    """
    run.server()  # refuses a method without one, before checkpoints are read
    rounds, models = run.history()
    # One end is stacked over rounds; the other, one model, is shared by all lines.
    last = jax.tree.map(lambda leaf: leaf[-1], models)
    rows = record.pool_rows(run, options)
    given = {"train": rows.train, "batch_size": run.batch_size}
    t = record.place_on_line(options)
    lines = line(run.task, models, last, rows.data, t=t, **given)
    barriers = {name: barrier(lines, name) for name in record.METRICS}

    frame, shares = principal(models, [str(round_) for round_ in rounds])
    axes = cover(frame, options.points or 0)
    grid = evaluate_plane(run, frame, axes, rows, store)
    seen = project(frame, models)
    marks = evaluate_points(run.task, frame, seen.positions, rows.data, **given)

    columns = {f"{name} barrier": values for name, values in barriers.items()}
    columns |= {name: lines.metrics[name][:, 0] for name in record.METRICS}
    columns |= {f"{name} at its mark": marks[name] for name in record.METRICS}
    columns["distance to the plane"] = seen.distance
    arrays = {"round": np.asarray(rounds), **columns, "shares": shares}
    arrays |= {"alpha": grid.alpha, "beta": grid.beta, **grid.metrics}
    lost = np.nanmax(np.abs(marks["loss"] / columns["loss"] - 1), initial=0)
    beside = (
        f"two directions hold {100 * shares.sum():.0f} % of the trajectory, and the "
        f"loss at a mark is up to {100 * lost:.0f} % off that of the round's model"
    )
    drawn = draw_planes(
        {run.label: grid}, options.metric or "loss", {run.label: seen.positions}
    )
    series = {name: {"": values[:, None]} for name, values in barriers.items()}
    about = f"{record.describe_line(t)}, {record.describe_rows(run, options)}"
    return record.Landscape(
        arrays=arrays,
        table=make_frame({"round": rounds, **columns}),
        figures={"": draw_rounds(rounds, series, " to the last"), "_plane": drawn},
        text=f"{run.about}: {_sentence(rounds, barriers)}, with {about}; {beside}",
        facts=f"With {about}; {beside}.",
    )


def _sentence(rounds: list[int], barriers: dict[str, np.ndarray]) -> str:
    """The barriers in words."""
    finite = record.find_finite(barriers)
    highest = barriers["loss"][finite].max(initial=0)
    first = _first_connected(rounds, barriers["accuracy"])
    alone = ", which is the last" if first == rounds[-1] else ""
    return (
        f"lines from the server's model at {len(rounds)} rounds to the last, "
        f"{finite.sum()} of {len(finite)} finite: barriers of the loss {highest:.4f} "
        f"at most; from round {first} on{alone}, the accuracy is at most 0.01 below "
        "the line"
    )


def _first_connected(rounds: list[int], barriers: np.ndarray) -> int:
    """The first round from which on all rounds are connected to the last."""
    # Not `> CONNECTED`: a barrier that is NaN connects nothing.
    apart = np.flatnonzero(~(barriers[:-1] <= CONNECTED))
    return rounds[apart[-1] + 1 if len(apart) else 0]
