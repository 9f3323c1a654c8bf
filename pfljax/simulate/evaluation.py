"""One evaluation of a run: every view, split and group of clients, and the summary."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import engine
from pfljax.core.keys import derive
from pfljax.core.types import ClientData, RunState
from pfljax.data import Federation
from pfljax.engine import mesh, placement
from pfljax.evaluation import metrics, programs
from pfljax.runs.settings import Experiment
from pfljax.simulate.simulation import Simulation

BY_CLIENT = {  # arrays of per_client.npz without an axis of evaluations
    "train_size", "test_size", "participations", "mixture/lambda",
    *(f"mixture/{s}/{m}" for s in ("test", "validation") for m in metrics.METRICS),
}  # fmt: skip

Values = dict[str, np.ndarray]
States = Callable[[np.ndarray], Any]  # ids -> their stacked states, padding behind


def due(experiment: Experiment, round_: int) -> bool:
    """Whether clients are judged after this round: every so many, and the last."""
    last = experiment.participation.rounds
    return round_ % experiment.evaluation.eval_every == 0 or round_ == last


def assess(
    sim: Simulation,
    federation: Federation,
    unseen: Federation | None,
    state: RunState,
    states: States,
) -> tuple[list[dict[str, Any]], Values]:
    """(records, metrics of each client by "model/split/metric") after this round."""
    ids = np.arange(federation.num_clients)
    last_cohort = np.unique(np.asarray(state.cohort))
    never = np.asarray(state.participations) == 0
    groups = {
        "all": ids,
        "participants": last_cohort[last_cohort < len(ids)],  # not an empty place
        "never chosen": ids[never],
    }
    views = [view for view in sim.judges if view != "trained" or sim.trained]
    records, values = _judge(sim, views, state, federation, states, ids, groups)
    values["round"] = np.asarray(state.round)
    if unseen is None:
        return records, values
    places = np.arange(unseen.num_clients)
    more, arrays = _judge(
        sim,
        list(sim.judges),
        state,
        unseen,
        states=lambda ids: newcomers(sim, state, ids),
        ids=federation.num_clients + places,
        groups={"unseen": places},
    )
    values |= {f"unseen:{name}": array for name, array in arrays.items()}
    return records + more, values


def newcomers(sim: Simulation, state: RunState, ids: np.ndarray) -> Any:
    """States of clients that never took part, stacked."""
    params = sim.task.init(derive(state.key, "params"))
    algorithm = sim.setting.algorithm
    return jax.vmap(lambda k: engine.init_client(algorithm, params, k, state.key))(
        jnp.asarray(ids)
    )


def _judge(
    sim: Simulation,
    views: list[str],
    state: RunState,
    federation: Federation,
    states: States,
    ids: np.ndarray,
    groups: dict[str, np.ndarray],
) -> tuple[list[dict[str, Any]], Values]:
    """Records and values of these clients, by view, on test and validation rows."""

    def judged(view: str, split: str) -> Values:
        rows = getattr(federation, split)
        if view == "server":
            return _by_span(sim, state, rows)
        parts = federation.train, rows
        return in_blocks(sim.judges[view], state, sim, states, ids, parts)

    splits = splits_of(federation)
    algorithm = sim.setting.algorithm
    values = programs.by_client(algorithm, judged, views, splits)
    sizes = {split: np.asarray(getattr(federation, split).size) for split in splits}
    records = programs.records(algorithm, values, sizes, groups)
    return records, values


def splits_of(federation: Federation) -> list[str]:
    """The splits, of test and validation, in which somebody has rows."""
    return [
        split
        for split in ("test", "validation")
        if np.asarray(getattr(federation, split).size).any()
    ]


def in_blocks(
    judge: Callable[..., Any], state: RunState, sim: Simulation, states: States,
    ids: np.ndarray, parts: tuple[ClientData, ...],
) -> Values:  # fmt: skip
    """judge(state, clients, ids, *parts), block by block if there are many clients."""
    if len(ids) <= sim.block:
        return jax.device_get(judge(state, states(ids), jnp.asarray(ids), *parts))
    by_client: Values = {}
    grid = sim.setting.mesh
    devices = grid.size if grid and grid.homes else 1
    for places in mesh.blocks(devices, len(ids), sim.block):
        # Nobody is taken for the last one, but its offset must lie on its device.
        some = np.minimum(places, len(ids) - 1)
        cut = [
            part._replace(offset=part.offset[places], size=part.size[some])
            for part in parts
        ]
        judged = judge(state, states(ids[some]), jnp.asarray(ids[some]), *cut)
        real = places < len(ids)
        for name, values in jax.device_get(judged).items():
            if name not in by_client:
                by_client[name] = np.empty((len(ids), *values.shape[1:]), values.dtype)
            by_client[name][places[real]] = values[real]
    return by_client


def _by_span(sim: Simulation, state: RunState, rows: ClientData) -> Values:
    """Metrics [C] of the server's model; clients with the same rows are judged once."""
    different, whose = placement.different(sim.setting.mesh, rows)
    found = sim.judges["server"](state.server, different)
    return {name: np.asarray(values)[whose] for name, values in found.items()}


def headline(records: list[dict[str, Any]], split: str = "test") -> float:
    """Mean accuracy over all clients of the personal models, newest broadcast."""
    wanted = {"model": "personal", "clients": "all", "split": split}
    wanted["when"] = programs.View("personal").when
    for record in records:
        if all(record[key] == value for key, value in wanted.items()):
            return record["metrics"]["accuracy"]["mean"]
    return float("nan")


def summary(lines: list[dict[str, Any]], arrays: Values) -> dict[str, Any]:
    """The last evaluation, the one chosen on validation rows, the best on test."""
    evaluated = [line for line in lines if "evaluations" in line]
    keys = ("round", "evaluations")
    chosen = None
    if "personal/validation/accuracy" in arrays:
        accuracy = np.nanmean(arrays["personal/validation/accuracy"], axis=1)
        line = evaluated[int(np.argmax(accuracy))]
        chosen = {key: line[key] for key in keys}
    on_test = [headline(line["evaluations"]) for line in evaluated]
    best = int(np.argmax(on_test))
    return {
        "last": {key: evaluated[-1][key] for key in keys},
        "chosen_on_validation": chosen,
        "best_on_test": {"round": evaluated[best]["round"], "accuracy": on_test[best]},
    }


def mixture(
    sim: Simulation,
    federation: Federation,
    state: RunState,
    states: States,
) -> tuple[dict[str, Any], Values]:
    """(figures over clients along the path of endpoints, arrays [C, 11])."""
    ids = np.arange(federation.num_clients)
    judge = sim.path
    assert judge is not None

    def judged(split: str) -> Values:
        rows = getattr(federation, split)
        return in_blocks(judge, state, sim, states, ids, (rows,))

    path = programs.along_path(judged, splits_of(federation))
    arrays = {f"mixture/{name}": values for name, values in path.items()}
    arrays["mixture/lambda"] = np.asarray(metrics.GRID, np.float32)
    weight = np.asarray(federation.test.size)
    return programs.mixture_summary(path, weight), arrays
