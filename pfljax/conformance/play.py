"""A method, played for some rounds on the toy: what the laws look at."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

from pfljax import algorithms, engine
from pfljax.conformance import context, toy
from pfljax.conformance.judging import compile_judge
from pfljax.conformance.script import (
    CLIENTS,
    ROUNDS,
    as_written,
    compile_rounds,
    counting,
    selection_of,
)
from pfljax.core.optimizers import sgd
from pfljax.core.types import ClientData, Local, RunState, Task

COMPILED = "/jax/core/compile/backend_compile_duration"  # JAX's name of the event
# A rate at which rounding does not grow, whatever weights a method gives its terms.
LOCAL = Local(0.02, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-3))


class Case(NamedTuple):
    """A method with options, and what it declares."""

    name: str
    options: Mapping[str, Any] = MappingProxyType({})
    bytes: tuple[int, int] | None = None  # down and up, of the toy's model
    ignores_steps: bool = False  # uploads the same whatever its budget of steps
    sends_statistics: bool = False  # of rows, such as means: no step makes them

    @property
    def label(self) -> str:
        """The name and the options."""
        pairs = (f"{key}={value}" for key, value in self.options.items())
        return "-".join([self.name, *pairs])


class Played(NamedTuple):
    """A method after 0 .. ROUNDS rounds, and the programs that played it."""

    case: Case
    factory: Callable
    setting: engine.Setting
    task: Task
    train: ClientData
    program: Any  # jitted (state, train, count, script) -> (state, metrics)
    judge: Callable  # (state, train) -> personal models and their logits, CLIENTS + 1
    states: list[RunState]  # after 0 .. ROUNDS rounds, as the script is written
    compiled: list[int]  # programs that each round compiled


def play(case: Case) -> Played:
    """Plays a method, a round a call."""
    factory = algorithms.method(case.name)
    task = toy.classifier()
    setting = _setting(case, factory, task)
    if setting.algorithm.linear:
        task = toy.linear()
        setting = _setting(case, factory, task)
    train, _ = toy.ragged()
    program = compile_rounds(setting)
    first = engine.init(setting, task, CLIENTS, jax.random.key(1))
    # Committed to a device, as a restored state and what a program returns are.
    states = [jax.device_put(first, jax.devices()[0])]
    compiled = []
    for _ in range(ROUNDS):
        before = toy.copy(states[-1])
        with compilations() as events:
            after, _ = program(before, train, 1, as_written())
        states.append(after)
        compiled.append(len(events))
    return Played(
        case=case,
        factory=factory,
        setting=setting,
        task=task,
        train=train,
        program=program,
        judge=compile_judge(setting, task),
        states=states,
        compiled=compiled,
    )


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """A list that grows with every program that is compiled meanwhile."""
    events = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == COMPILED:
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield events
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def _setting(case: Case, factory: Callable, task: Task) -> engine.Setting:
    """The method with its options, on the toy's rounds."""
    filled_in = context.filled_in(factory, ROUNDS)
    return engine.Setting(
        algorithm=factory(task, LOCAL, **case.options, **filled_in),
        local=LOCAL,
        selection=selection_of(as_written()),
        channel=counting(as_written().held_back),
    )
