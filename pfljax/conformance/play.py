"""A method, played for some rounds on the toy: what the laws look at."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp

from pfljax import algorithms, engine, registry, selection
from pfljax.conformance import toy
from pfljax.core.optimizers import sgd
from pfljax.core.types import Array, Batch, ClientData, Key, Local, RunState, Task
from pfljax.engine import rounds
from pfljax.evaluation.views import View, model_of

ROUNDS = 6
ASKED = 5  # clients of a round
PLACES = ASKED + 1  # of the cohort: the last one stays empty
CLIENTS = len(toy.SIZES)
LOCAL = Local(0.05, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-3))
MANY = 1000  # more steps than anybody's budget


class Case(NamedTuple):
    """A method with options, and what it declares."""

    name: str
    options: Mapping[str, Any] = MappingProxyType({})
    bytes: tuple[int, int] | None = None  # down and up, of `toy.classifier`
    ignores_steps: bool = False  # uploads the same whatever its budget of steps

    @property
    def label(self) -> str:
        """The name and the options."""
        pairs = (f"{key}={value}" for key, value in self.options.items())
        return "-".join([self.name, *pairs])


class Script(NamedTuple):
    """Who does what in every round: an input, so that one program plays all."""

    order: Array  # i32[PLACES], the place of the draw that stands in each place
    asked: Array  # bool[PLACES], whether anybody stands there
    reports: Array  # f32[PLACES], 0 for who trains in vain
    steps: Array  # i32[PLACES], at most so many
    number: Array  # i32[CLIENTS], under which a drawn client is kept
    drawn: Array  # i32[CLIENTS], the inverse: whose keys a client has


class Played(NamedTuple):
    """A method after 0 .. ROUNDS rounds, and the programs that played it."""

    case: Case
    factory: Callable
    setting: engine.Setting
    task: Task
    train: ClientData
    program: Any  # jitted (state, train, count, script) -> (state, metrics)
    judge: Callable  # (state, train) -> personal models and their logits, CLIENTS + 1
    states: list[RunState]
    compiled: list[int]  # how many were compiled until after each call


def as_drawn() -> Script:
    """Everybody does all the work, in the order of the draw."""
    return Script(
        order=jnp.arange(PLACES),
        asked=jnp.arange(PLACES) < ASKED,
        reports=jnp.ones(PLACES),
        steps=jnp.full(PLACES, MANY),
        number=jnp.arange(CLIENTS),
        drawn=jnp.arange(CLIENTS),
    )


def play(case: Case) -> Played:
    """Plays a method, a round a call."""
    factory = algorithms.method(case.name)
    task = toy.classifier()
    context = registry.given(factory, rounds=ROUNDS)
    algorithm = factory(task, LOCAL, **case.options, **context)
    draw = selection.uniform(ASKED, CLIENTS)
    setting = engine.Setting(algorithm=algorithm, local=LOCAL, selection=draw)
    train, _ = toy.ragged()
    program = scripted(setting)
    script = as_drawn()
    acted = setting._replace(selection=follow(draw, script))
    first = engine.init(acted, task, CLIENTS, jax.random.key(1))
    # Committed to a device, as a restored state and what a program returns are.
    states = [jax.device_put(first, jax.devices()[0])]
    compiled = []
    for _ in range(ROUNDS):
        before = toy.copy(states[-1])
        after, _ = program(before, train, 1, script)
        states.append(after)
        compiled.append(program._cache_size())
    return Played(
        case=case,
        factory=factory,
        setting=setting,
        task=task,
        train=train,
        program=program,
        judge=judge(setting, task),
        states=states,
        compiled=compiled,
    )


def scripted(setting: engine.Setting) -> Any:
    """The rounds of a setting, jitted as (state, train, count, script)."""

    def run(state, train, count, script):
        acted = setting._replace(selection=follow(setting.selection, script))

        def key_of(key: Key, client_id: Array) -> Key:
            # A renumbered client keeps its keys: only its number is another.
            drawn_id = jnp.take(script.drawn, client_id, mode="clip")
            return client_key(key, drawn_id)

        client_key = rounds.client_key
        # While it is traced only: the program holds what the patch computed.
        with mock.patch.object(rounds, "client_key", key_of):
            return rounds.rounds(acted, state, train, count, ROUNDS)

    return jax.jit(run, donate_argnums=0)


def follow(draw: selection.Selection, script: Script) -> selection.Selection:
    """The selection, whose clients do as the script says; one place more."""

    def choose(state: Any, key: Key) -> Array:
        number = script.number[draw.choose(state, key)]
        empty = jnp.full(PLACES - ASKED, CLIENTS, number.dtype)
        ids = jnp.concatenate([number, empty])
        ids = jnp.where(script.asked, ids, CLIENTS)
        return ids[script.order]

    def work(key: Key, steps: Array) -> tuple[Array, Array]:
        reports = script.reports * script.asked
        mask = reports[script.order]
        return jnp.minimum(steps, script.steps), mask

    return draw._replace(cohort=PLACES, choose=choose, work=work)


def judge(setting: engine.Setting, task: Task) -> Any:
    """Jitted (state, train) -> what is judged, and its logits on the whole pool.

    Of all clients, and of one that the run never saw, with the rows of client 0.
    """
    algorithm = setting.algorithm
    model_for = model_of(setting, View())

    def run(state, train):
        params = task.init(state.key)
        unseen = engine.init_client(algorithm, params, jnp.int32(CLIENTS), state.key)

        def one(client_id, client, offset, size):
            rows = ClientData(train.examples, offset, size)
            personal = model_for(state, client_id, client, rows, None)
            # Where rows are poisoned, NaN must come of the model alone.
            batch = Batch.of_rows(jnp.nan_to_num(train.examples.x))
            return personal, algorithm.predict(personal, batch)

        def with_unseen(known, new):
            new_row = jnp.asarray(new)[None]
            return jnp.concatenate([known, new_row])

        ids = jnp.arange(CLIENTS + 1)
        owner = ids % CLIENTS  # the last one has the rows of client 0
        clients = jax.tree.map(with_unseen, state.clients, unseen)
        return jax.vmap(one)(ids, clients, train.offset[owner], train.size[owner])

    return jax.jit(run)
