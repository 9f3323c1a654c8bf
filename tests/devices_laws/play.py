"""Rounds of a method with a combination of items, played in three ways."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import declared
from devices_laws.items import COHORT, ROUNDS, Item, settings_of
from pfljax import Experiment, engine
from pfljax.conformance import toy
from pfljax.core.components import Component
from pfljax.core.types import RunState
from pfljax.data import Federation
from pfljax.engine import Setting
from pfljax.selection import Selection
from pfljax.simulate import program_parts, simulation
from pfljax.simulate.simulation import Simulation

MANY = 1000  # steps that nobody may take


class Played(NamedTuple):
    """A played combination, which the laws check."""

    method: str
    items: tuple[Item, ...]
    sim: Simulation
    states: list[RunState]  # after 0 .. ROUNDS rounds, a round a call
    metrics: list[Any]  # of each of these calls
    whole: tuple[RunState, Any]  # (state, metrics) of all rounds in one call
    wide: RunState  # of the cohort under one vmap, with one more place that is empty
    compiled: int  # programs that the calls of one width compiled


@cache
def federation() -> Federation:
    """The toy's ragged clients, and examples of the server."""
    train, test = toy.ragged()
    return Federation(
        train=train,
        validation=test._replace(size=jnp.zeros_like(test.size)),
        test=test,
        num_classes=3,
        shift=0.0,
        scale=1.0,
        name="toy",
        class_names=("0", "1", "2"),
        manifest={},
        public=toy.public(),
    )


@cache
def options_of(method: str) -> dict[str, Any]:
    """The options by which the method's own tests use."""
    return dict(declared.of_method(method)[0].options)


def prepared(method: str, items: tuple[Item, ...]) -> Simulation:
    """The method with these items, ready to run; nothing is compiled.

    Raises:
      ValueError: it is refused.
    """
    experiment = Experiment(
        algorithm=Component(method, options_of(method)),
        clients=federation().num_clients,
        cohort=COHORT,
        rounds=ROUNDS,
        epochs=1,
        batch_size=4,
        lr=0.02,
        momentum=0.9,
        devices=1,
        width=1,
        **settings_of(items),
    )
    return simulation.simulation(experiment, federation(), toy.classifier())


def play(method: str, items: tuple[Item, ...]) -> Played:
    """Rounds one by one, all in one call, and all of a cohort at once."""
    sim = prepared(method, items)
    first = _first(sim.setting)
    states = [first]
    metrics = []
    for _ in range(ROUNDS):
        state, of_round = _rounds(sim.rounds, states[-1], 1)
        states.append(state)
        metrics.append(of_round)
    whole = _rounds(sim.rounds, first, ROUNDS)
    setting = widened(sim.setting)
    program = program_parts.make_rounds(setting, ROUNDS)
    wide, _ = _rounds(program, _first(setting), ROUNDS)
    jitted = sim.rounds if sim.setting.mode is None else sim.rounds.program
    return Played(
        method=method,
        items=items,
        sim=sim,
        states=states,
        metrics=metrics,
        whole=whole,
        wide=wide,
        compiled=jitted._cache_size(),
    )


def widened(setting: Setting) -> Setting:
    """The setting whose cohort trains at once, and has an empty place more."""
    setting = setting._replace(width=None)
    # Of asynchronous rounds the places are how many are under way.
    if setting.mode is not None:
        return setting
    num_clients = federation().num_clients
    wider = with_an_empty_place(setting.selection, num_clients)
    return setting._replace(selection=wider)


def with_an_empty_place(select: Selection, num_clients: int) -> Selection:
    """The selection, whose last place is nobody's."""

    def choose(state, key):
        ids = select.choose(state, key)
        return jnp.append(ids, jnp.int32(num_clients))

    def work(state, key, ids, steps):
        steps, mask = select.work(state, key, ids[:-1], steps[:-1])
        return jnp.append(steps, jnp.int32(MANY)), jnp.append(mask, 1.0)

    return select._replace(
        cohort=select.cohort + 1,
        choose=choose,
        work=work,
        full=False,
    )


def _first(setting: Setting) -> RunState:
    clients = federation().num_clients
    state = engine.init(setting, toy.classifier(), clients, jax.random.key(1))
    # Committed to a device, as what a program returns is.
    return jax.device_put(state, jax.devices()[0])


def _rounds(program: Any, state: RunState, count: int) -> tuple[RunState, Any]:
    """(the state after `count` more rounds, metrics of these); `state` is kept."""
    fed = federation()
    state, metrics = program(toy.copy(state), fed.train, count, public=fed.public)
    return state, jax.tree.map(lambda leaf: leaf[:count], metrics)
