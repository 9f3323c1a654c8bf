"""The compiled program of many runs of one experiment, called slice by slice.

Runs share nothing but the pool of rows, so devices work alone: each maps `one_run` over
its own, one after another (`lanes` = 1) or `lanes` under one vmap.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pfljax import engine, selection
from pfljax.core import tree
from pfljax.core.types import Array, ClientData, RunState, Task
from pfljax.engine import Setting
from pfljax.engine.rounds import rounds
from pfljax.evaluation import programs, records
from pfljax.evaluation.views import View, views_of
from pfljax.runs.settings import Experiment
from pfljax.runtime.memory import free_bytes, needed_bytes
from pfljax.simulate import components
from pfljax.simulate.components import Shape
from pfljax.sweep.pool import Data, Rows

AXIS = "runs"


class Inputs(NamedTuple):
    """In what runs differ, stacked over them."""

    seed: Any  # i32
    federation: Any  # i32, an index of Data
    cohort: Any  # i32, or None where all have the same
    settings: dict[str, Any]  # f32 each, fields of Experiment
    hyper: dict[str, Any]  # f32 each, options of the method


class Plan(NamedTuple):
    """All that the compiled program depends on."""

    experiment: Experiment  # what the runs share; the cohort is the largest
    shape: Shape
    devices: int
    each: int  # runs of one device in one call
    lanes: int  # of them under one vmap
    leaves: tuple[jax.ShapeDtypeStruct, ...]  # of (Data, Inputs of one run)
    treedef: Any


class Found(NamedTuple):
    """What the runs gave, stacked over them."""

    loss: Any  # f32[rounds], of training
    metrics: dict[str, Any]  # "personal/test/accuracy", ...: f32[T, C]
    path: dict[str, Any]  # "test/accuracy", ...: f32[C, 11] after the last round


def run_all(
    experiment: Experiment,
    shape: Shape,
    data: Data,
    inputs: Inputs,
    num_devices: int,
    at_once: int | None = None,
    lanes: int | None = None,
    task: Task | None = None,
) -> Iterator[tuple[np.ndarray, Found]]:
    """Slice by slice of all R runs: (which, i[n], what they gave).

    `at_once` bounds the runs of one call, and memory does. Where a device takes one run
    after another, a call takes one run a device. Raises a MemoryError where that does
    not fit.
    """
    if at_once is None and lanes is None and jax.default_backend() == "cpu":
        at_once = num_devices
    one = jax.tree.map(lambda leaf: leaf[0], inputs)
    leaves, treedef = jax.tree.flatten(jax.tree.map(_abstract, (data, one)))
    plan = Plan(experiment, shape, num_devices, 1, 1, tuple(leaves), treedef)
    R = len(inputs.seed)
    program, plan = _fitting(plan, R, at_once or R, lanes, task)
    everywhere, split = _shardings(num_devices)
    data = jax.device_put(data, everywhere)
    size = num_devices * plan.each
    slots = _deal(inputs.cohort, R, num_devices, plan.each)
    for start in range(0, len(slots), size):
        chosen = slots[start : start + size]
        part = jax.tree.map(lambda leaf, rows=chosen: leaf[rows], inputs)
        found = jax.device_get(program(data, jax.device_put(part, split)))
        which, first = np.unique(chosen, return_index=True)
        yield which, jax.tree.map(lambda leaf, rows=first: leaf[rows], found)


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype)


def _deal(cohort: Any, R: int, devices: int, each: int) -> np.ndarray:
    """Which run stands in each slot, i[slices * devices * each].

    The longest first, dealt in turn to the devices; the last fills what is left. Of
    cohorts 1, 2, 3, 4, 5, 2 devices and 2 runs each: 4 2 | 3 1 (one slice), 0 0 | 0 0.
    """
    order = np.arange(R) if cohort is None else np.argsort(-cohort, kind="stable")
    order = np.append(order, np.repeat(order[-1:], -R % (devices * each)))
    return order.reshape(-1, each, devices).swapaxes(1, 2).ravel()


def _fitting(
    plan: Plan, R: int, at_once: int, lanes: int | None, task: Task | None
) -> tuple[Any, Plan]:
    """(program, its plan): as few slices of equal size as memory allows.

    If what is asked for needs too much, one run is compiled as well: both tell what a
    further run needs, if all need alike. Where that was too little, slices are halved.
    """

    def compiled(each: int) -> tuple[Any, Plan, int]:
        wanted = lanes or (1 if jax.default_backend() == "cpu" else each)
        own = plan._replace(each=each, lanes=min(wanted, each))
        program = _compiled(own) if task is None else _compile(own, task)
        return program, own, needed_bytes(program)

    all_ = -(-R // plan.devices)
    most = each = _equal(all_, max(1, at_once // plan.devices))
    *found, need = compiled(each)
    free = free_bytes(plan.devices)
    if need > free:
        *found, least = compiled(1)
        if least > free:
            raise MemoryError(
                f"one run needs {least / 2**30:.2f} GiB on each of {plan.devices} "
                f"devices, which have {free / 2**30:.2f} GiB free; choose a smaller "
                "width, fewer clients, or fewer seeds, whose rows lie together"
            )
        a_run = (need - least) / (most - 1)  # bytes of each further run
        each = _equal(all_, 1 + int((free - least) / a_run))
        *found, need = compiled(each)
    while need > free and each > 1:
        each = each // 2
        *found, need = compiled(each)
    return found[0], found[1]


def _equal(count: int, most: int) -> int:
    """Size of the fewest equal slices of `count` that hold at most `most`."""
    return -(-count // -(-count // most))


@functools.lru_cache(maxsize=16)
def _compiled(plan: Plan) -> Any:
    return _compile(plan, components.make_task(plan.experiment, plan.shape))


def _compile(plan: Plan, task: Task) -> Any:
    """The program (data, inputs of all slots) -> Found, for the plan's shapes."""
    data, one = jax.tree.unflatten(plan.treedef, plan.leaves)
    everywhere, split = _shardings(plan.devices)
    slots = plan.devices * plan.each

    def on_device(data: Data, inputs: Inputs) -> Found:
        run = functools.partial(one_run, plan, task, data)
        if plan.lanes == plan.each > 1:
            return jax.vmap(run)(inputs)
        batch = plan.lanes if plan.lanes > 1 else None
        return jax.lax.map(run, inputs, batch_size=batch)

    specs = everywhere.spec, split.spec
    program = jax.shard_map(
        on_device,
        mesh=split.mesh,
        in_specs=specs,
        out_specs=split.spec,
        check_vma=False,
    )
    many = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((slots, *leaf.shape), leaf.dtype), one
    )
    jitted = jax.jit(program, in_shardings=(everywhere, split))
    return jitted.lower(data, many).compile()


def _shardings(num_devices: int) -> tuple[NamedSharding, NamedSharding]:
    """(on every device, split over them by run)."""
    grid = Mesh(np.array(jax.devices()[:num_devices]), (AXIS,))
    whole, split = PartitionSpec(), PartitionSpec(AXIS)
    return NamedSharding(grid, whole), NamedSharding(grid, split)


def one_run(plan: Plan, task: Task, data: Data, run: Inputs) -> Found:
    """All rounds of one run, evaluated after every `eval_every` and the last."""
    C, experiment = plan.shape.num_clients, plan.experiment
    setting = setting_of(plan, task, run)
    several = len(data.train[0]) > 1
    which = run.federation if several else jnp.int32(0)
    span, rows = tree.take(data[1:], which)
    train = ClientData(data.pool, *span)
    every = min(experiment.evaluation.eval_every, experiment.participation.rounds)

    def block(state: RunState, count: Array) -> tuple[RunState, Any]:
        state, history = rounds(setting, state, train, count, every)
        return state, (history["loss"], judged(setting, task, state, train, rows))

    first = engine.init(setting, task, C, jax.random.key(run.seed))
    counts = jnp.diff(jnp.asarray([0, *evaluations(experiment)]))
    state, (loss, metrics) = jax.lax.scan(block, first, counts)
    path = along_path(setting, state, train, rows)
    return Found(loss.ravel()[: experiment.participation.rounds], metrics, path)


def evaluations(experiment: Experiment) -> list[int]:
    """Rounds finished at each evaluation."""
    every, last = experiment.evaluation.eval_every, experiment.participation.rounds
    return [*range(every, last, every), last]


def setting_of(plan: Plan, task: Task, run: Inputs) -> Setting:
    """The setting of one run, its numbers traced."""
    hyper = dict(plan.experiment.method.hyper) | run.hyper
    own = plan.experiment.replace(**run.settings, hyper=hyper)
    setting = components.make_setting(own, task, plan.shape)
    if run.cohort is None:
        return setting
    drawn = selection.first(setting.selection, run.cohort, plan.shape.num_clients)
    return setting._replace(selection=drawn)


def judged(
    setting: Setting,
    task: Task,
    state: RunState,
    train: ClientData,
    splits: dict[str, Rows],
) -> dict[str, Array]:
    """Metrics f32[C] by "model/split/metric"; the server's once a set of rows."""
    algorithm = setting.algorithm
    pool = train.examples
    ids = jnp.arange(len(train.size))

    def of_view(view: str, split: str) -> dict[str, Array]:
        rows = splits[split]
        if view == "server":
            different = ClientData(pool, *rows.different)
            metrics = programs.judge_server(setting, task)(state.server, different)
            return tree.take(metrics, rows.place)
        judge = programs.judge(setting, View(view), _block(setting))
        each = ClientData(pool, *rows.own)
        return judge(state, state.clients, ids, train, each)

    views = views_of(algorithm)
    return records.by_client(algorithm, of_view, views, list(splits))


def along_path(
    setting: Setting, state: RunState, train: ClientData, splits: dict[str, Rows]
) -> dict[str, Array]:
    """Metrics f32[C, 11] by "split/metric" between the endpoints, if there are any."""
    if setting.algorithm.endpoints is None:
        return {}
    judge = programs.judge_path(setting, _block(setting))
    ids = jnp.arange(len(train.size))

    def of_split(split: str) -> dict[str, Array]:
        rows = ClientData(train.examples, *splits[split].own)
        return judge(state, state.clients, ids, rows)

    return records.along_path(of_split, list(splits))


def _block(setting: Setting) -> int:
    """Clients that are judged at once."""
    return setting.width or setting.selection.cohort
