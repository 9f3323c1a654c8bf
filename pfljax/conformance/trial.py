"""Runs a few rounds of a method on the toy federation, for the laws to look at."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax import algorithms, engine
from pfljax.conformance import toy
from pfljax.conformance.script import (
    CLIENTS,
    ROUNDS,
    Script,
    compile_draws,
    compile_rounds,
    count_uploads,
    full_script,
    scripted_selection,
)
from pfljax.core.components import Component
from pfljax.core.optimizers import sgd
from pfljax.core.types import Batch, ClientData, Local, RunState, Task
from pfljax.evaluation.views import PERSONAL, client_model

COMPILED = "/jax/core/compile/backend_compile_duration"  # JAX's name of the event
# A rate at which rounding does not grow, whatever weights a method gives its terms.
LOCAL = Local(0.02, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-3))


class Case(NamedTuple):
    """A method with options, and what it declares."""

    name: str
    options: Mapping[str, Any] = MappingProxyType({})
    bytes: tuple[int, int] | None = None  # down and up, of the toy's model
    ignores_steps: bool = False  # its uploads do not depend on the budget of steps
    sends_statistics: bool = False  # of examples, such as means, instead of changes

    @property
    def label(self) -> str:
        """The name and the options."""
        pairs = (f"{key}={value}" for key, value in self.options.items())
        return "-".join([Component(self.name).short_name, *pairs])


class Trial(NamedTuple):
    """A method after 0 .. ROUNDS rounds, and the programs that ran it."""

    case: Case
    factory: Callable
    setting: engine.Setting
    task: Task
    train: ClientData
    program: Any  # jitted (state, train, count, script) -> (state, metrics)
    draws: Any  # the same, of `compile_draws`
    evaluate: Callable  # (state, train) -> personal models and logits, CLIENTS + 1
    states: list[RunState]  # after 0 .. ROUNDS rounds of the full script
    compiled: list[int]  # how many programs each round compiled


def run_rounds(case: Case) -> Trial:
    """Runs a method, one round in each call."""
    factory = algorithms.method(case.name)
    task = toy.classifier()
    setting = make_setting(case, factory, task)
    if setting.algorithm.linear:
        task = toy.linear()
        setting = make_setting(case, factory, task)
    train, _ = toy.ragged()
    program = compile_rounds(setting)
    first = engine.init(setting, task, CLIENTS, jax.random.key(1))
    # Committed to a device, as a restored state and what a program returns are.
    states = [jax.device_put(first, jax.devices()[0])]
    compiled = []
    for _ in range(ROUNDS):
        before = toy.copy(states[-1])
        with compilations() as events:
            after, _ = program(before, train, 1, full_script())
        states.append(after)
        compiled.append(len(events))
    return Trial(
        case=case,
        factory=factory,
        setting=setting,
        task=task,
        train=train,
        program=program,
        draws=compile_draws(setting),
        evaluate=_compile_evaluation(setting, task),
        states=states,
        compiled=compiled,
    )


def replay(
    trial: Trial,
    state: RunState,
    count: int,
    script: Script | None = None,
) -> RunState:
    """The state after `count` more rounds; `state` itself stays usable."""
    # The program donates its state, and several laws use the same one.
    state = toy.copy(state)
    after, _ = trial.program(state, trial.train, count, script or full_script())
    return after


def replay_draws(trial: Trial, script: Script) -> RunState:
    """The state after all rounds of a script of `draw_again`."""
    first = toy.copy(trial.states[0])._replace(cohort=script.cohorts[0])
    after, _ = trial.draws(first, trial.train, ROUNDS, script)
    return after


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """A list that grows with every program that is compiled in this context."""
    events = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == COMPILED:
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def make_setting(case: Case, factory: Callable, task: Task) -> engine.Setting:
    """The setting of a method for a model; a script selects the clients."""
    options = dict(case.options) | toy.run_options(factory, ROUNDS)
    script = full_script()
    return engine.Setting(
        algorithm=factory(task, LOCAL, **options),
        local=LOCAL,
        selection=scripted_selection(script),
        channel=count_uploads(script),
    )


def _compile_evaluation(setting: engine.Setting, task: Task) -> Any:
    """Jitted (state, train) -> personal models, and their logits on the whole pool.

    Leaves are [CLIENTS + 1, ...]: those of all clients, and of a new client that has
    the examples of client 0.
    """
    algorithm = setting.algorithm
    model_for = client_model(setting, PERSONAL)

    def run(state, train):
        params = task.init(state.key)
        unseen = engine.init_client(algorithm, params, jnp.int32(CLIENTS), state.key)

        def evaluate_client(client_id, client, offset, size):
            data = ClientData(train.examples, offset, size)
            personal = model_for(state, client_id, client, data, toy.public())
            # Examples may be NaN, but a NaN of the logits must come from the model.
            batch = Batch.full(jnp.nan_to_num(train.examples.x))
            return personal, algorithm.predict(personal, batch)

        ids = jnp.arange(CLIENTS + 1)
        owner = ids % CLIENTS
        clients = jax.tree.map(
            lambda known, new: jnp.concatenate([known, jnp.asarray(new)[None]]),
            state.clients,
            unseen,
        )
        return jax.vmap(evaluate_client)(
            ids, clients, train.offset[owner], train.size[owner]
        )

    return jax.jit(run)
