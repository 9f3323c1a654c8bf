"""How well the models of some clients are connected, round by round."""

import numpy as np

from pfljax.landscape.barriers import barrier
from pfljax.landscape.figures import draw_rounds
from pfljax.landscape.finished import Finished, find_clients
from pfljax.landscape.kinds import blocks
from pfljax.landscape.kinds.record import (
    METRICS,
    Landscape,
    choose_rows,
    describe_rows,
    place_points,
)
from pfljax.landscape.lines import line
from pfljax.landscape.pairs import pair_lines
from pfljax.report.frames import make_frame
from pfljax.runs.landscape_options import LandscapeOptions

MOST = 10  # clients, unless `through` names others
SERVER, CLIENTS = "to the server", "between clients"


def compute_over_rounds(
    run: Finished, options: LandscapeOptions, store: blocks.Store
) -> Landscape:
    """Barriers between personal models, and from the server's model to each, by round.

    A checkpoint holds the states of all clients, so every kept round has their models.
    """
    rounds = run.rounds()
    ids = _choose_clients(run, options)
    chosen = run.take(ids)
    t = place_points(options, 0, 0.5, 1)

    def evaluate(round_: int) -> dict[str, np.ndarray]:
        return _evaluate(chosen.at(round_), options, t)

    found = blocks.compute(store, "rounds", rounds, evaluate)
    columns = {name: np.nanmean(values, axis=1) for name, values in found.items()}
    last = [f"{name} {values[-1]:.4f}" for name, values in columns.items()]
    series = {
        name: {
            which: found[f"{name} barrier {which}"]
            for which in (SERVER, CLIENTS)
            if f"{name} barrier {which}" in found
        }
        for name in METRICS
    }
    who = f"clients {', '.join(map(str, ids))}"
    return Landscape(
        arrays={"round": np.asarray(rounds), "ids": ids, **found},
        table=make_frame({"round": rounds, **columns}),
        figures={"": draw_rounds(rounds, series)},
        text=f"{run.about}: the personal models of {who} at {len(rounds)} rounds, "
        f"{describe_rows(run, options)}; means at the last one: {', '.join(last)}",
        facts=f"Of {who}; each line has {describe_rows(run, options)}.",
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
    rows = choose_rows(past, options.rows)(past)
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
        for name in METRICS
    }
    return barriers | {f"distance {CLIENTS}": lines.distance[None]}
