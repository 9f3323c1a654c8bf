"""Functions for your own loop over rounds: `init`, `round` and `evaluate`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.core import Tracer

from pfljax.core.requirements import require, require_a
from pfljax.core.types import Key, Metrics, RunState, Task
from pfljax.data import Federation
from pfljax.engine import mesh
from pfljax.engine.population import DevicePopulation
from pfljax.runs.result import Evaluation
from pfljax.runs.settings import Experiment
from pfljax.runtime import devices
from pfljax.simulate import begin, evaluation, width
from pfljax.simulate.export import load_initial
from pfljax.simulate.federation import build_federation
from pfljax.simulate.place import place


class Simulator(NamedTuple):
    """Three functions without side effects; only the `RunState` changes."""

    init: Callable[[Key], RunState]
    round: Callable[[RunState, Federation], tuple[RunState, Metrics]]
    evaluate: Callable[[RunState, Federation], Evaluation]


def build(
    experiment: Experiment,
    federation: Federation | None = None,
    *,
    task: Task | None = None,
) -> tuple[Simulator, Federation]:
    """The functions of an experiment for your own loop, and its data on the devices.

        sim, data = build(Experiment("ditto:lam=1.0", rounds=10))
        state = sim.init(jax.random.key(0))
        for _ in range(10):
            state, metrics = sim.round(state, data)
        print(sim.evaluate(state, data).personal.test.accuracy)

    With the key of the seed, states and metrics equal those of `run` to the bit.
    Nothing is written. `round` donates its state, so that its memory is used again:
    keep a copy of a state that you read later. The state after round r also decides
    which clients take part in round r + 1. `data` may be another federation with the
    same shapes.

    Args:
      experiment: the settings. Your loop decides when to evaluate, save and stop, so
        that the settings for these and for the folder have no effect.
      federation: clients of your own, as in `run`.
      task: a model of your own, as in `run`.

    Raises:
      ValueError: a setting is out of range or unknown, or the states of clients would
        be kept in a store.
    """
    experiment = begin.validate(experiment, federation, task)
    storage = experiment.state_storage
    expected = "'device' in your own loop, whose RunState has the states of all clients"
    require("state_storage", storage, storage == "device", expected)
    devices.prepare()
    devices.check(experiment.devices)
    data, _ = build_federation(experiment, federation)
    initial = load_initial(experiment, Path(experiment.folder))
    sim = width.choose(experiment, data, task, initial=initial)
    population = DevicePopulation(sim.rounds, sim.setting.groups)

    def init(key: Key) -> RunState:
        state = sim.init(key)
        # Laid out as after a round; otherwise the rounds would compile twice.
        return jax.device_put(state, mesh.shardings(sim.setting.mesh, state))

    def one_round(state: RunState, data: Federation) -> tuple[RunState, Metrics]:
        _check_arguments(state, data)
        state, metrics = sim.rounds(state, data.train, 1, public=data.public)
        return state, {name: metric[0] for name, metric in metrics.items()}

    def evaluate(state: RunState, data: Federation) -> Evaluation:
        _check_arguments(state, data)
        states = partial(population.states, state)
        records, _ = evaluation.evaluate(sim, data, None, state, states)
        return Evaluation(int(state.round), records)

    return Simulator(init, one_round, evaluate), place(sim, data)


def _check_arguments(state: Any, data: Any) -> None:
    """Refuses what is no state or federation, and a state that `round` has donated."""
    require_a("state", state, RunState, "the state that init or round returned")
    require_a("data", data, Federation, "the federation that build returned")
    leaves = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)]
    # A loop that is traced has no arrays yet.
    is_traced = any(isinstance(leaf, Tracer) for leaf in leaves)
    if not is_traced and any(leaf.is_deleted() for leaf in leaves):
        raise ValueError(
            "state was given to round before, which uses its memory again; go on with "
            "the state that round returned, or copy it first: "
            "jax.tree.map(jax.numpy.copy, state)"
        )
