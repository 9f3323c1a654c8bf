"""One run of a sweep as traced code: its rounds, its evaluations, its path."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax import engine, selection
from pfljax.core import tree
from pfljax.core.types import Array, ClientData, RunState, Task
from pfljax.engine import Setting
from pfljax.engine.rounds import rounds
from pfljax.engine.state import parted, stacks_of
from pfljax.evaluation import programs, records
from pfljax.evaluation.over_clients import DETECTION
from pfljax.evaluation.quantities import quantities_of_clients
from pfljax.evaluation.uncertainty import Foreign
from pfljax.evaluation.views import View, views_of
from pfljax.runs.settings import Experiment
from pfljax.simulate import components
from pfljax.simulate.components import Shape
from pfljax.sweep.pool import Data, Rows

ByName = dict[str, Array]
BY_ROUND = ("loss", "seconds")  # metrics of training that are kept


class Inputs(NamedTuple):
    """In what runs differ, stacked over them."""

    seed: Any  # i32
    federation: Any  # i32, an index of Data
    cohort: Any  # i32, or None where all have the same
    settings: dict[str, Any]  # f32 each, fields of Experiment
    hyper: dict[str, Any]  # f32 each, options of the method


class Outcome(NamedTuple):
    """What the runs gave, stacked over them."""

    loss: Any  # f32[rounds], of training
    seconds: Any  # f32[rounds], virtual; None without a clock
    metrics: dict[str, Any]  # "personal/test/accuracy", ...: f32[T, C]
    quantities: dict[str, Any]  # of the method, as "tau" of pFedVEM: f32[T, C]
    # "test/accuracy", ...: f32[C, 11]; "test/ensemble/accuracy", ...: f32[C]; at last
    path: dict[str, Any]


class Clients(NamedTuple):
    """Whose rows train and whose are judged, in one run, and those of its server."""

    train: ClientData
    judged: dict[str, Rows]  # by split
    public: ClientData | None  # rows of the server


def one_run(
    experiment: Experiment, shape: Shape, task: Task, data: Data, inputs: Inputs
) -> Outcome:
    """All rounds of one run, evaluated after every `eval_every` and the last."""
    num_rounds = experiment.participation.rounds
    every = min(experiment.evaluation.eval_every, num_rounds)
    setting = setting_of(experiment, shape, task, inputs)
    clients = clients_of(data, inputs.federation)

    def block(
        state: RunState, count: Array
    ) -> tuple[RunState, tuple[ByName, ByName, ByName]]:
        # The last block may be shorter: `count` of its `every` rounds are run.
        state, history = rounds(
            setting, state, clients.train, count, every, public=clients.public
        )
        metrics = judged(setting, task, state, clients)
        quantities = measured(setting, task, state)
        by_round = {name: history[name] for name in BY_ROUND if name in history}
        return state, (by_round, metrics, quantities)

    key = jax.random.key(inputs.seed)
    first = engine.init(setting, task, shape.num_clients, key)
    ends = [0, *evaluations(experiment)]
    counts = jnp.diff(jnp.asarray(ends))
    state, (padded, metrics, quantities) = jax.lax.scan(block, first, counts)
    # Blocks are padded to `every` rounds; only the last one is not full.
    by_round = jax.tree.map(lambda leaf: leaf.ravel()[:num_rounds], padded)
    return Outcome(
        loss=by_round["loss"],
        seconds=by_round.get("seconds"),
        metrics=metrics,
        quantities=quantities,
        path=along_path(setting, task, state, clients),
    )


def clients_of(data: Data, federation: Array) -> Clients:
    """The clients of one federation."""
    several = len(data.train[0]) > 1
    # A constant index is no run's own, so that the lanes of a vmap share the spans.
    index = federation if several else jnp.int32(0)
    spans = data.train, data.judged, data.public
    train, rows, public = tree.take(spans, index)
    offset, size = train
    return Clients(
        train=ClientData(data.pool, offset, size),
        judged=rows,
        public=public,
    )


def evaluations(experiment: Experiment) -> list[int]:
    """Rounds finished at each evaluation."""
    every = experiment.evaluation.eval_every
    last = experiment.participation.rounds
    return [*range(every, last, every), last]


def setting_of(
    experiment: Experiment, shape: Shape, task: Task, inputs: Inputs
) -> Setting:
    """The setting of one run, its numbers traced."""
    method = experiment.algorithm.with_options(inputs.hyper)
    of_run = experiment.replace(algorithm=method, **inputs.settings)
    setting = components.make_setting(of_run, task, shape)
    if inputs.cohort is None:
        return setting
    # The cohort has slots for the largest one; a smaller one is its first clients.
    drawn = selection.first(setting.selection, inputs.cohort, shape.num_clients)
    return setting._replace(selection=drawn)


def judged(setting: Setting, task: Task, state: RunState, clients: Clients) -> ByName:
    """Metrics f32[C] by "model/split/metric"; the server's once a set of rows."""
    algorithm = setting.algorithm
    train = clients.train

    def of_server(rows: Rows, others: Foreign | None) -> ByName:
        judge = programs.judge_server(setting, task)
        if others is not None:
            # Clients of one span may hold different classes: each is judged alone.
            each = ClientData(train.examples, *rows.spans)
            by_span = others._replace(held=others.held[:, None])
            metrics = judge(state.server, each, by_span)
            return metrics | {DETECTION: metrics[DETECTION][:, 0]}
        unique = ClientData(train.examples, *rows.unique)
        metrics = judge(state.server, unique)
        return tree.take(metrics, rows.span_of_client)

    def of_view(view: str, split: str) -> ByName:
        rows = clients.judged[split]
        others = foreign_of(clients, split)
        # The server's model is one for all: clients that share rows share its metrics.
        if view == "server":
            return of_server(rows, others)
        each = ClientData(train.examples, *rows.spans)

        def of_stack(alone: Setting, stack: Any, ids: Array) -> ByName:
            judge = programs.judge(alone, View(view), _block(setting))
            theirs = _holding(others, ids)
            parts = _of(train, ids), _of(each, ids), theirs, clients.public
            return judge(state, stack, ids, *parts)

        return by_stack(setting, task, state, of_stack)

    views = views_of(algorithm)
    splits = list(clients.judged)
    return records.by_client(algorithm, of_view, views, splits)


def foreign_of(clients: Clients, split: str) -> Foreign | None:
    """The rows by which the detection of foreign classes is judged, if it is."""
    foreign = clients.judged[split].foreign
    if not foreign:
        return None
    which, held = foreign
    return Foreign(tree.take(clients.train.examples, which), held)


def measured(setting: Setting, task: Task, state: RunState) -> ByName:
    """What the method tells of each client, f32[C] by name; of most none."""

    def of_stack(alone: Setting, stack: Any, ids: Array) -> ByName:
        quantities = quantities_of_clients(alone, _block(setting))
        return quantities(state, stack, ids) if quantities else {}

    return by_stack(setting, task, state, of_stack)


def along_path(
    setting: Setting, task: Task, state: RunState, clients: Clients
) -> ByName:
    """Metrics between the endpoints, if there are any, as `records.along_path`."""
    if setting.algorithm.endpoints is None:
        return {}
    pool = clients.train.examples

    def of_split(split: str) -> ByName:
        spans = clients.judged[split].spans
        rows = ClientData(pool, *spans)
        others = foreign_of(clients, split)

        def of_stack(alone: Setting, stack: Any, ids: Array) -> ByName:
            judge = programs.judge_path(alone, _block(setting))
            return judge(state, stack, ids, _of(rows, ids), _holding(others, ids))

        return by_stack(setting, task, state, of_stack)

    return records.along_path(of_split, list(clients.judged))


def by_stack(
    setting: Setting,
    task: Task,
    state: RunState,
    judge: Callable[..., ByName],
) -> ByName:
    """judge(setting, states, ids) of the clients of each architecture, by client."""
    num_clients = state.participations.shape[0]
    stacks = stacks_of(setting, task, num_clients)
    values: ByName = {}
    for stack, states in zip(stacks, parted(setting, state.clients), strict=True):
        alone = setting._replace(algorithm=stack.algorithm, groups=None)
        ids = jnp.asarray(stack.ids)
        of_stack = judge(alone, states, ids)
        if len(stacks) == 1:
            return of_stack
        for name, metric in of_stack.items():
            zeros = jnp.zeros((num_clients, *metric.shape[1:]), metric.dtype)
            values[name] = values.get(name, zeros).at[ids].set(metric)
    return values


def _of(rows: ClientData, ids: Array) -> ClientData:
    """The rows of these clients; of all, as they are."""
    if len(ids) == len(rows.size):
        return rows
    return rows._replace(offset=rows.offset[ids], size=rows.size[ids])


def _holding(others: Foreign | None, ids: Array) -> Foreign | None:
    """Foreign rows for these clients."""
    return others and others._replace(held=others.held[ids])


def _block(setting: Setting) -> int:
    """Clients that are judged at once."""
    return setting.width or setting.selection.cohort
