"""Evaluates a state: all models, splits and groups of clients."""

from functools import partial
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import engine
from pfljax.core.requirements import require_known
from pfljax.core.types import ClientData, RunState
from pfljax.data import Federation
from pfljax.data.manifest import GROUPS
from pfljax.engine import placement
from pfljax.evaluation import metrics, over_clients, records, uncertainty
from pfljax.evaluation.over_clients import headline, is_greater_better
from pfljax.evaluation.uncertainty import OodExamples
from pfljax.evaluation.views import MIXTURE, SERVER, TRAINED
from pfljax.runs.settings import Experiment
from pfljax.simulate import malicious
from pfljax.simulate.blocks import States, Values, by_architecture
from pfljax.simulate.simulation import Simulation, client_architecture

SPLITS = ("test", "validation")
QUANTITY = "client/"  # prefix of quantities among the arrays of a run

Record = dict[str, Any]


def is_due(experiment: Experiment, round_: int) -> bool:
    """Whether clients are evaluated after this round."""
    return round_ % experiment.eval_every == 0 or round_ == experiment.rounds


def evaluate(
    sim: Simulation,
    federation: Federation,
    unseen: Federation | None,
    state: RunState,
    states: States,
) -> tuple[list[Record], Values]:
    """Returns (records, metrics of each client by "model/split/metric")."""
    ids = np.arange(federation.num_clients)
    last_cohort = np.unique(np.asarray(state.cohort))
    never = np.asarray(state.participations) == 0
    is_malicious = malicious.which(sim.setting.channel, federation, state.key)
    groups = {
        "all": ids,
        "participants": last_cohort[last_cohort < len(ids)],  # without empty places
        "never chosen": ids[never],
        **malicious.groups(is_malicious),
        **_groups(federation),
    }
    views = [view for view in sim.views if view != TRAINED or sim.trained]
    values = _by_client(sim, views, state, federation, states, ids)
    lines = _records(sim, values, federation, groups)
    for name, array in _quantities(sim, state, states, ids).items():
        values[f"{QUANTITY}{name}"] = array
    values["round"] = np.asarray(state.round)
    if unseen is None:
        return lines, values
    unseen_ids = np.arange(unseen.num_clients)
    # Newcomers are also evaluated after training. Their numbers are past the end, so
    # that they share no key with a client that trains.
    numbers = federation.num_clients + unseen_ids
    newcomers = partial(newcomer_states, sim, state)
    of_unseen = _by_client(sim, sim.views, state, unseen, newcomers, numbers)
    by_group = {f"unseen {name}": ids for name, ids in _groups(unseen).items()}
    lines += _records(sim, of_unseen, unseen, {"unseen": unseen_ids, **by_group})
    return lines, values | {f"unseen:{name}": a for name, a in of_unseen.items()}


def _groups(federation: Federation) -> dict[str, np.ndarray]:
    """The clients of each group of the data, by "domain=photo"."""
    return {
        f"{group}={value}": np.flatnonzero(np.array(values) == value)
        for group, values in federation.manifest.get(GROUPS, {}).items()
        for value in dict.fromkeys(values)
    }


def newcomer_states(sim: Simulation, state: RunState, ids: np.ndarray) -> Any:
    """Stacked states of clients of one architecture that never took part."""
    architecture = client_architecture(sim, ids[0])
    params = engine.first_params(architecture.task, state.key)
    algorithm = architecture.setting.algorithm

    def newcomer(client_id: jax.Array) -> Any:
        return engine.init_client(algorithm, params, client_id, state.key)

    return jax.vmap(newcomer)(jnp.asarray(ids))


def evaluate_mixture(
    sim: Simulation, federation: Federation, state: RunState, states: States
) -> tuple[dict[str, Any], Values]:
    """Returns (figures over clients along the path of endpoints, their arrays)."""
    ids = np.arange(federation.num_clients)
    arrays = _by_client(sim, [MIXTURE], state, federation, states, ids)
    weight = np.asarray(federation.test.size)
    figures = records.mixture_summary(arrays, weight)
    lambdas = np.asarray(over_clients.GRID, np.float32)
    return figures, arrays | {"mixture/lambda": lambdas}


def _by_client(
    sim: Simulation,
    views: list[str],
    state: RunState,
    federation: Federation,
    states: States,
    ids: np.ndarray,
) -> Values:
    """Metrics of these clients by "view/split/metric"."""

    def evaluate_view(view: str, split: str) -> Values:
        data = getattr(federation, split)
        ood = [federation.ood[split]] if federation.ood else []
        if view == SERVER:
            return _by_span(sim, state, data, ood)
        parts = federation.train, data, *ood

        def evaluator(architecture: Any) -> Any:
            return partial(architecture.evaluate[view], public=federation.public)

        return by_architecture(sim, evaluator, state, states, ids, parts)

    algorithm = sim.setting.algorithm
    return records.by_client(algorithm, evaluate_view, views, list_splits(federation))


def _records(
    sim: Simulation,
    values: Values,
    federation: Federation,
    groups: dict[str, np.ndarray],
) -> list[Record]:
    splits = list_splits(federation)
    sizes = {split: np.asarray(getattr(federation, split).size) for split in splits}
    return records.records(sim.setting.algorithm, values, sizes, groups)


def _quantities(
    sim: Simulation, state: RunState, states: States, ids: np.ndarray
) -> Values:
    """The method's quantities of each client by name; {} for most methods."""
    if sim.setting.algorithm.quantities is None:
        return {}
    return by_architecture(sim, attrgetter("quantities"), state, states, ids, ())


def list_splits(federation: Federation) -> list[str]:
    """The splits among test and validation in which a client has examples."""
    # On the host: jnp.any would compile a program.
    sizes = {name: np.asarray(getattr(federation, name).size) for name in SPLITS}
    return [name for name in SPLITS if sizes[name].any()]


def _by_span(
    sim: Simulation, state: RunState, data: ClientData, ood: list[OodExamples]
) -> Values:
    """Metrics [C] of the server's model; clients with equal examples are done once."""
    different, whose = placement.distinct(sim.setting.mesh, data)
    held = [uncertainty.group_by_span(one, whose, len(different.size)) for one in ood]
    by_span = sim.architectures[0].evaluate[SERVER](state.server, different, *held)
    values = {name: np.asarray(values)[whose] for name, values in by_span.items()}
    if ood:
        # Clients with equal examples may hold different classes.
        position = uncertainty.positions_in_span(whose)[:, None]
        detected = np.take_along_axis(values[metrics.DETECTION], position, 1)
        values[metrics.DETECTION] = detected[:, 0]
    return values


def on_validation(arrays: Values, monitor: str = "auto") -> np.ndarray | None:
    """The mean of the monitored metric on validation examples, [T]; more is better.

    It is None without examples. A mean that is not finite is minus infinity.

    Raises:
      ValueError: the run has no such metric.
    """
    prefix = "personal/validation/"
    known = [name.removeprefix(prefix) for name in arrays if name.startswith(prefix)]
    if not known:
        return None
    metric = headline(known, monitor)
    require_known("monitor", metric, known)
    by_client = arrays[f"{prefix}{metric}"]
    # NaN is a client without examples, or with one class for an AUC: it is left out.
    # But one whose loss is not a number has diverged.
    has_examples = ~np.isnan(arrays[f"{prefix}{headline(known)}"]).all(axis=0)
    diverged = has_examples & np.isnan(arrays[f"{prefix}loss"])
    by_client = np.where(diverged & np.isnan(by_client), np.inf, by_client)
    if "malicious" in arrays:  # left out as well
        by_client = by_client[:, ~arrays["malicious"]]
    goodness = np.nanmean(by_client, axis=1)
    goodness = goodness if is_greater_better(metric) else -goodness
    return np.where(np.isfinite(goodness), goodness, -np.inf)
