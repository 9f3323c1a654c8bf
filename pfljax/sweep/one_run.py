"""One run of a sweep as traced code: its rounds and evaluations.

The numbers in which runs differ are arguments of the compiled program. In a single run
they are constants, which XLA folds, so that both differ in the last bit: training
losses of six methods by at most 1.3e-7. The evaluation is that of a run
(`evaluation.programs`), traced within the program instead of called from the host.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import engine, selection
from pfljax.core import tree
from pfljax.core.types import Array, ClientData, RunState, Task
from pfljax.engine import Setting, versions
from pfljax.engine.rounds import rounds
from pfljax.engine.state import init_stacks, split_stacks
from pfljax.evaluation import programs, records
from pfljax.evaluation.over_clients import DETECTION
from pfljax.evaluation.uncertainty import OodExamples
from pfljax.evaluation.views import MIXTURE, SERVER, views
from pfljax.runs.settings import Experiment
from pfljax.simulate import components
from pfljax.simulate.shape import Shape
from pfljax.sweep.pool import Data, Split

ByName = dict[str, Array]
BY_ROUND = ("loss", "seconds")  # metrics of training that are kept


class Inputs(NamedTuple):
    """The values in which runs differ, stacked over them."""

    seed: Any  # i32
    federation: Any  # i32, an index of Data
    cohort: Any  # i32, or None where all have the same
    settings: dict[str, Any]  # f32 each, fields of Experiment
    hyper: dict[str, Any]  # f32 each, options of the method
    events: Any = None  # a Window of each evaluation's asynchronous rounds, [T, ...]


class Outcome(NamedTuple):
    """The results of runs, stacked over them."""

    loss: Any  # f32[rounds], of training
    # f32[rounds], virtual; None without a clock, and where the host has ordered events.
    seconds: Any
    metrics: dict[str, Any]  # "personal/test/accuracy", ...: f32[T, C]
    quantities: dict[str, Any]  # of the method, such as "tau" of pFedVEM: f32[T, C]
    # After the last round: "test/accuracy", ...: f32[C, 11], and
    # "test/ensemble/accuracy", ...: f32[C].
    path: dict[str, Any]


def take_runs(stacked: Any, index: Any) -> Any:
    """The runs `index` of `Inputs` or of an `Outcome`, on the host."""
    return jax.tree.map(lambda leaf: leaf[index], stacked)


class Clients(NamedTuple):
    """The examples of one run."""

    train: ClientData
    splits: dict[str, Split]  # for evaluations
    public: ClientData | None  # of the server


def one_run(
    experiment: Experiment, shape: Shape, task: Task, data: Data, inputs: Inputs
) -> Outcome:
    """Trains one run; evaluates it after every `eval_every` rounds and the last."""
    num_rounds = experiment.rounds
    every = min(experiment.eval_every, num_rounds)
    setting = make_setting(experiment, shape, task, inputs)
    clients = take_clients(data, inputs.federation)

    def block(
        state: RunState, part: tuple[Array, Any]
    ) -> tuple[RunState, tuple[ByName, ByName, ByName]]:
        # The last block may be shorter: only `count` of its `every` rounds are run.
        count, events = part
        train, public = clients.train, clients.public
        if events is None:
            state, history = rounds(setting, every, state, train, count, public=public)
        else:
            state, history = versions.rounds(
                setting, every, state, train, events, count, public
            )
        metrics = evaluate(setting, task, state, clients, views(setting.algorithm))
        reported = quantities(setting, task, state)
        by_round = {name: history[name] for name in BY_ROUND if name in history}
        return state, (by_round, metrics, reported)

    key = jax.random.key(inputs.seed)
    first = engine.init(setting, task, shape.num_clients, key)
    ends = [0, *evaluations(experiment)]
    counts = jnp.diff(jnp.asarray(ends))
    state, (padded, metrics, reported) = jax.lax.scan(
        block, first, (counts, inputs.events)
    )
    # Blocks are padded to `every` rounds, and only the last one may not be full.
    by_round = jax.tree.map(lambda leaf: leaf.ravel()[:num_rounds], padded)
    return Outcome(
        loss=by_round["loss"],
        seconds=by_round.get("seconds"),
        metrics=metrics,
        quantities=reported,
        path=evaluate_mixture(setting, task, state, clients),
    )


def take_clients(data: Data, federation: Array) -> Clients:
    """The clients of one federation."""
    several = len(data.train[0]) > 1
    # With a constant index the lanes of a vmap share the spans.
    index = federation if several else jnp.int32(0)
    spans = data.train, data.splits, data.public
    train, splits, public = tree.take(spans, index)
    return Clients(ClientData(data.pool, *train), splits, public)


def evaluations(experiment: Experiment) -> list[int]:
    """Rounds finished at each evaluation."""
    every = experiment.eval_every
    last = experiment.rounds
    return [*range(every, last, every), last]


def make_setting(
    experiment: Experiment, shape: Shape, task: Task, inputs: Inputs
) -> Setting:
    """The setting of one run, whose numbers may be traced."""
    method = experiment.algorithm.with_options(inputs.hyper)
    of_run = experiment.replace(algorithm=method, **inputs.settings)
    setting = components.make_setting(of_run, task, shape)
    if inputs.cohort is None:
        return setting
    # There are slots for the largest cohort, and a smaller one fills the first.
    drawn = selection.first(setting.selection, inputs.cohort, shape.num_clients)
    return setting._replace(selection=drawn)


def evaluate(
    setting: Setting, task: Task, state: RunState, clients: Clients, views: list[str]
) -> ByName:
    """Metrics f32[C] of the models `views` by "model/split/metric"."""

    def evaluate_view(view: str, split: str) -> ByName:
        if view == SERVER:
            return _evaluate_server(setting, task, state, clients, split)
        test = ClientData(clients.train.examples, *clients.splits[split].spans)
        ood = take_ood(clients, split)

        def evaluate_stack(alone: Setting, stack: Any, ids: Array) -> ByName:
            evaluate = programs.evaluate_clients(alone, view, alone.width)
            train = _take(clients.train, ids)
            ood_of_stack = ood and ood._replace(held=ood.held[ids])
            parts = train, _take(test, ids), ood_of_stack, clients.public
            return evaluate(state, stack, ids, *parts)

        return by_stack(setting, task, state, evaluate_stack)

    splits = list(clients.splits)
    return records.by_client(setting.algorithm, evaluate_view, views, splits)


def _evaluate_server(
    setting: Setting, task: Task, state: RunState, clients: Clients, split: str
) -> ByName:
    """Metrics of the server's model; clients with equal examples are evaluated once."""
    evaluate = programs.evaluate_server(setting, task)
    examples, spans = clients.train.examples, clients.splits[split]
    ood = take_ood(clients, split)
    if ood is None:
        metrics = evaluate(state.server, ClientData(examples, *spans.unique))
        return tree.take(metrics, spans.span_of_client)
    # Clients with equal examples may hold different classes: each is evaluated alone.
    by_span = ood._replace(held=ood.held[:, None])
    metrics = evaluate(state.server, ClientData(examples, *spans.spans), by_span)
    return metrics | {DETECTION: metrics[DETECTION][:, 0]}


def take_ood(clients: Clients, split: str) -> OodExamples | None:
    """The examples that evaluate the detection of other classes; None for none."""
    ood = clients.splits[split].ood
    if not ood:
        return None
    which, held = ood
    return OodExamples(tree.take(clients.train.examples, which), held)


def quantities(setting: Setting, task: Task, state: RunState) -> ByName:
    """The method's quantities of each client, f32[C] by name; {} for most methods."""

    def stack_quantities(alone: Setting, stack: Any, ids: Array) -> ByName:
        program = programs.quantities_of_clients(alone, alone.width)
        return program(state, stack, ids) if program else {}

    return by_stack(setting, task, state, stack_quantities)


def evaluate_mixture(
    setting: Setting, task: Task, state: RunState, clients: Clients
) -> ByName:
    """Metrics along the path between endpoints by "split/metric"; {} without any."""
    if setting.algorithm.endpoints is None:
        return {}
    by_name = evaluate(setting, task, state, clients, [MIXTURE])
    return {name.removeprefix(f"{MIXTURE}/"): value for name, value in by_name.items()}


def by_stack(
    setting: Setting,
    task: Task,
    state: RunState,
    evaluate: Callable[..., ByName],
) -> ByName:
    """evaluate(setting, states, ids) of all clients, one architecture at a time.

    The setting has the number of clients that are evaluated at once as its width.
    """
    stacks = init_stacks(setting, task, state.participations.shape[0])
    width = setting.width or setting.selection.cohort
    values = []
    for stack, states in zip(stacks, split_stacks(setting, state.clients), strict=True):
        alone = setting._replace(algorithm=stack.algorithm, groups=None, width=width)
        values.append(evaluate(alone, states, jnp.asarray(stack.ids)))
    if len(stacks) == 1:
        return values[0]
    order = np.argsort(np.concatenate([stack.ids for stack in stacks]))
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[order], *values)


def _take(data: ClientData, ids: Array) -> ClientData:
    """The examples of these clients, without a copy if they are all."""
    if len(ids) == len(data.size):
        return data
    return data._replace(offset=data.offset[ids], size=data.size[ids])
