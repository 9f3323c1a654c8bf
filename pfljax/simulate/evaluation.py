"""One evaluation of a run: every view, split and group of clients, and the summary."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import engine
from pfljax.core.keys import derive
from pfljax.core.types import ClientData, RunState
from pfljax.data import Federation
from pfljax.engine import placement
from pfljax.evaluation import metrics, over_clients, records, uncertainty
from pfljax.evaluation.quantities import PREFIX
from pfljax.evaluation.uncertainty import Foreign
from pfljax.runs.judged import figures
from pfljax.runs.settings import Experiment
from pfljax.simulate import detection, malicious
from pfljax.simulate.blocks import States, Values, by_architecture, in_blocks
from pfljax.simulate.simulation import Architecture, Simulation, architecture_of

SPLITS = ("test", "validation")
BY_CLIENT = {  # arrays of per_client.npz without an axis of evaluations
    *("train_size", "test_size", "participations", "malicious", "mixture/lambda"),
    *(
        f"mixture/{split}/{model}{name}"
        for split in SPLITS
        for model in ("", "ensemble/")
        for name in (*metrics.METRICS, metrics.DETECTION)
    ),
}

Record = dict[str, Any]


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
) -> tuple[list[Record], Values]:
    """(records, metrics of each client by "model/split/metric") after this round."""
    ids = np.arange(federation.num_clients)
    last_cohort = np.unique(np.asarray(state.cohort))
    never = np.asarray(state.participations) == 0
    is_malicious = malicious.which(sim.setting.channel, federation, state.key)
    groups = {
        "all": ids,
        "participants": last_cohort[last_cohort < len(ids)],  # not an empty place
        "never chosen": ids[never],
        **malicious.groups(is_malicious),
    }
    judges = sim.architectures[0].judges
    views = [view for view in judges if view != "trained" or sim.trained]
    lines, values = _judge(sim, views, state, federation, states, ids, groups)
    values |= _quantities(sim, state, states, ids)
    values["round"] = np.asarray(state.round)
    if unseen is None:
        return lines, values
    unseen_ids = np.arange(unseen.num_clients)
    # Views after training too: whoever joins would train before it is judged.
    unseen_lines, unseen_values = _judge(
        sim,
        list(judges),
        state,
        unseen,
        states=lambda ids: newcomers(sim, state, ids),
        # Numbers past the end: keys of nobody who trains, and a newcomer's model.
        ids=federation.num_clients + unseen_ids,
        groups={"unseen": unseen_ids},
    )
    for name, array in unseen_values.items():
        values[f"unseen:{name}"] = array
    return lines + unseen_lines, values


def newcomers(sim: Simulation, state: RunState, ids: np.ndarray) -> Any:
    """States of clients of one architecture that never took part, stacked."""
    architecture = architecture_of(sim, ids[0])
    params = architecture.task.init(derive(state.key, "params"))
    algorithm = architecture.setting.algorithm

    def newcomer(client_id: jax.Array) -> Any:
        return engine.init_client(algorithm, params, client_id, state.key)

    return jax.vmap(newcomer)(jnp.asarray(ids))


def _judge(
    sim: Simulation,
    views: list[str],
    state: RunState,
    federation: Federation,
    states: States,
    ids: np.ndarray,
    groups: dict[str, np.ndarray],
) -> tuple[list[Record], Values]:
    """Records and values of these clients, by view, on test and validation rows."""

    def judged(view: str, split: str) -> Values:
        rows = getattr(federation, split)
        if view == "server":
            return _by_span(sim, state, rows, detection.of_split(federation, split))
        parts = federation.train, rows, *detection.of_split(federation, split)

        def of_architecture(architecture: Architecture, *whose: Any) -> Values:
            judge = architecture.judges[view]
            judge = functools.partial(judge, public=federation.public)
            return in_blocks(judge, state, sim, states, *whose)

        return by_architecture(sim, of_architecture, ids, parts)

    splits = splits_of(federation)
    algorithm = sim.setting.algorithm
    values = records.by_client(algorithm, judged, views, splits)
    sizes = {split: np.asarray(getattr(federation, split).size) for split in splits}
    lines = records.records(algorithm, values, sizes, groups)
    return lines, values


def _quantities(
    sim: Simulation, state: RunState, states: States, ids: np.ndarray
) -> Values:
    """What the method tells of each client, by "client/NAME"; of most none."""
    if sim.architectures[0].quantities is None:
        return {}

    def of_architecture(architecture: Architecture, *whose: Any) -> Values:
        assert architecture.quantities is not None
        return in_blocks(architecture.quantities, state, sim, states, *whose)

    values = by_architecture(sim, of_architecture, ids, ())
    return {f"{PREFIX}{name}": array for name, array in values.items()}


def splits_of(federation: Federation) -> list[str]:
    """The splits, of test and validation, in which somebody has rows."""
    splits = []
    for split in SPLITS:
        sizes = np.asarray(getattr(federation, split).size)
        if sizes.any():
            splits.append(split)
    return splits


def _by_span(
    sim: Simulation, state: RunState, rows: ClientData, foreign: list[Foreign]
) -> Values:
    """Metrics [C] of the server's model; clients with the same rows are judged once."""
    different, whose = placement.distinct(sim.setting.mesh, rows)
    held = [uncertainty.by_span(one, whose, len(different.size)) for one in foreign]
    by_span = sim.architectures[0].judges["server"](state.server, different, *held)
    values = {name: np.asarray(values)[whose] for name, values in by_span.items()}
    if foreign:
        # Clients of one span may hold different classes.
        place = uncertainty.places(whose)[:, None]
        detected = np.take_along_axis(values[metrics.DETECTION], place, 1)
        values[metrics.DETECTION] = detected[:, 0]
    return values


def headline(lines: list[Record]) -> float:
    """Mean test accuracy over all clients, each by the model that it uses."""
    by_split = figures(lines).get("personal", {})
    accuracy = by_split.get("test", {}).get("accuracy", {})
    mean = accuracy.get("mean")
    return math.nan if mean is None else mean


def on_validation(arrays: Values, metric: str = "accuracy") -> np.ndarray | None:
    """Mean of a metric on validation rows by evaluation, [T]; None without such rows.

    It is infinite where a client that has such rows has no number, as it diverged.
    """
    if "personal/validation/accuracy" not in arrays:
        return None
    # A client without validation rows has NaN, and no say in the choice.
    has_rows = ~np.isnan(arrays["personal/validation/accuracy"])
    by_client = arrays[f"personal/validation/{metric}"]
    by_client = np.where(has_rows & np.isnan(by_client), np.inf, by_client)
    if "malicious" in arrays:  # they have no say either
        by_client = by_client[:, ~arrays["malicious"]]
    return np.nanmean(by_client, axis=1)


def summary(lines: list[Record], arrays: Values) -> dict[str, Any]:
    """The last evaluation, the one chosen on validation rows, the best on test."""
    evaluated = [line for line in lines if "evaluations" in line]
    chosen = None
    accuracy = on_validation(arrays)
    if accuracy is not None:
        chosen = _evaluation(evaluated[int(np.argmax(accuracy))])
    on_test = [headline(line["evaluations"]) for line in evaluated]
    best = int(np.argmax(on_test))
    return {
        "last": _evaluation(evaluated[-1]),
        "chosen_on_validation": chosen,
        "best_on_test": {
            "round": evaluated[best]["round"],
            "accuracy": on_test[best],
        },
    }


def _evaluation(line: Record) -> Record:
    """The round of a line of metrics, its evaluations, and what was measured beside."""
    measured = ("round", "evaluations", "dissimilarity")
    return {name: line[name] for name in measured if name in line}


def mixture(
    sim: Simulation,
    federation: Federation,
    state: RunState,
    states: States,
) -> tuple[dict[str, Any], Values]:
    """(figures over clients along the path of endpoints, arrays [C, 11] and [C])."""
    ids = np.arange(federation.num_clients)

    def of_architecture(architecture: Architecture, *whose: Any) -> Values:
        assert architecture.path is not None
        return in_blocks(architecture.path, state, sim, states, *whose)

    def judged(split: str) -> Values:
        rows = getattr(federation, split)
        parts = rows, *detection.of_split(federation, split)
        return by_architecture(sim, of_architecture, ids, parts)

    path = records.along_path(judged, splits_of(federation))
    arrays = {f"mixture/{name}": values for name, values in path.items()}
    arrays["mixture/lambda"] = np.asarray(over_clients.GRID, np.float32)
    weight = np.asarray(federation.test.size)
    return records.mixture_summary(path, weight), arrays
