"""Many runs of one experiment in one compiled program, for `pfljax.sweep`.

Runs share nothing but the pool of rows, so devices work alone: each maps `one_run` over
its own, one after another (`lanes` = 1) or `lanes` under one vmap.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pfljax import build, engine, evaluate, parts, selection, tree
from pfljax.config import Experiment
from pfljax.data import Federation
from pfljax.engine import Setting
from pfljax.memory import free_bytes, needed_bytes
from pfljax.parts import Shape
from pfljax.types import Array, ClientData, Examples, RunState, Task

METRICS = ("accuracy", "loss")
AXIS = "runs"
Span = tuple[Any, Any]  # offset and size


class Data(NamedTuple):
    """F federations whose rows lie in one pool."""

    pool: Examples  # [N, ...]
    train: Span  # i32[F, C]
    test: Span  # i32[F, C]
    spans: Span  # i32[F, U], the different spans of `test`
    place: Any  # i32[F, C], which of them is a client's


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
    metrics: dict[str, Any]  # "personal/accuracy", ...: f32[T, C]


def stack(federations: list[Federation]) -> Data:
    """The federations with one copy of every pool, on the host."""
    parts = [part for f in federations for part in (f.train, f.test)]
    pools = {id(part.examples): part.examples for part in parts}
    ends = np.cumsum([0, *(len(pool.y) for pool in pools.values())])
    if ends[-1] > np.iinfo(np.int32).max:
        raise ValueError(
            f"the seeds' federations have {ends[-1]} rows together; at most 2**31 - 1 "
            "are held: sweep fewer seeds at once"
        )
    starts = dict(zip(pools, ends, strict=False))

    def moved(part: str) -> Span:
        spans = [getattr(f, part) for f in federations]
        offset = [np.asarray(span.offset) + starts[id(span.examples)] for span in spans]
        return np.stack(offset).astype(np.int32), np.stack([s.size for s in spans])

    def joined(*parts: Any) -> np.ndarray:
        arrays = [np.asarray(part) for part in parts]
        return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]

    pool = jax.tree.map(joined, *pools.values())
    return Data(pool, moved("train"), test := moved("test"), *_different(*test))


def _different(offset: np.ndarray, size: np.ndarray) -> tuple[Span, np.ndarray]:
    """(spans i32[F, U], place i32[F, C]): each federation's rows without repeats."""
    found = [
        np.unique(np.stack(pair, 1), axis=0, return_inverse=True)
        for pair in zip(offset, size, strict=True)
    ]
    most = max(len(spans) for spans, _ in found)
    spans = [np.pad(spans, ((0, most - len(spans)), (0, 0))) for spans, _ in found]
    offset, size = np.moveaxis(np.stack(spans), 2, 0)
    return (offset, size), np.stack([place.ravel() for _, place in found])


def run_all(
    experiment: Experiment,
    shape: Shape,
    data: Data,
    inputs: Inputs,
    num_devices: int,
    at_once: int | None = None,
    lanes: int | None = None,
    task: Task | None = None,
) -> tuple[Found, int]:
    """(results of all R runs in order, runs of one call).

    `at_once` bounds the runs of one call, and memory does. Raises a MemoryError where
    one run on each device does not fit.
    """
    one = jax.tree.map(lambda leaf: leaf[0], inputs)
    leaves, treedef = jax.tree.flatten(jax.tree.map(_abstract, (data, one)))
    plan = Plan(experiment, shape, num_devices, 1, 1, tuple(leaves), treedef)
    R = len(inputs.seed)
    program, plan = _fitting(plan, R, at_once or R, lanes, task)
    everywhere, split = _shardings(num_devices)
    data = jax.device_put(data, everywhere)
    size = num_devices * plan.each
    slots = _deal(inputs.cohort, R, num_devices, plan.each)
    parts = []
    for start in range(0, len(slots), size):
        chosen = slots[start : start + size]
        part = jax.tree.map(lambda leaf, rows=chosen: leaf[rows], inputs)
        parts.append(jax.device_get(program(data, jax.device_put(part, split))))
    joined = jax.tree.map(lambda *found: np.concatenate(found), *parts)
    order = np.unique(slots, return_index=True)[1]
    return jax.tree.map(lambda leaf: leaf[order], joined), size


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype)


def _deal(cohort: Any, R: int, devices: int, each: int) -> np.ndarray:
    """Which run stands in each slot, i[slices * devices * each].

    The longest first, dealt in turn to the devices; the last fills what is left.
    """
    order = np.arange(R) if cohort is None else np.argsort(-cohort, kind="stable")
    order = np.append(order, np.repeat(order[-1:], -R % (devices * each)))
    return order.reshape(-1, each, devices).swapaxes(1, 2).ravel()


def _fitting(
    plan: Plan, R: int, at_once: int, lanes: int | None, task: Task | None
) -> tuple[Any, Plan]:
    """(program, its plan): as few slices of equal size as memory allows."""

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
        a_run = (need - least) / (most - 1)
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
    return _compile(plan, parts.make_task(plan.experiment, plan.shape))


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
    several = len(data.place) > 1
    which = run.federation if several else jnp.int32(0)
    own = tree.take(data[1:], which)
    train, test, spans = (ClientData(data.pool, *span) for span in own[:3])
    every = min(experiment.eval_every, experiment.rounds)

    def judge(state: RunState) -> dict[str, Array]:
        return judged(setting, task, state, train, test, (spans, own[3]))

    def block(state: RunState, count: Array) -> tuple[RunState, Any]:
        state, history = engine.rounds(setting, state, train, count, every)
        return state, (history["loss"], judge(state))

    first = engine.init(setting.algorithm, task, C, jax.random.key(run.seed))
    counts = jnp.diff(jnp.asarray([0, *evaluations(experiment)]))
    _, (loss, metrics) = jax.lax.scan(block, first, counts)
    return Found(loss.ravel()[: experiment.rounds], metrics)


def evaluations(experiment: Experiment) -> list[int]:
    """Rounds finished at each evaluation."""
    every, last = experiment.eval_every, experiment.rounds
    return [*range(every, last, every), last]


def setting_of(plan: Plan, task: Task, run: Inputs) -> Setting:
    """The setting of one run, its numbers traced."""
    hyper = dict(plan.experiment.hyper) | run.hyper
    own = plan.experiment.replace(**run.settings, hyper=hyper)
    setting = parts.make_setting(own, task, plan.shape)
    if run.cohort is None:
        return setting
    drawn = selection.first(setting.selection, run.cohort, plan.shape.num_clients)
    return setting._replace(selection=drawn)


def judged(
    setting: Setting,
    task: Task,
    state: RunState,
    train: ClientData,
    test: ClientData,
    shared: tuple[ClientData, Array],
) -> dict[str, Array]:
    """Metrics f32[C] on test rows, by model; the server's once a set of rows."""
    found, (spans, place) = {}, shared
    if setting.algorithm.server_model is not None:
        scores = evaluate.judge_server(setting, task)(state.server, spans)
        found["server"] = tree.take(scores, place)
    if build.personal_is_server(setting, task, train.examples.x.shape[1:]):
        found["personal"] = found["server"]
    else:
        ids = jnp.arange(len(train.size))
        block = setting.width or setting.selection.cohort
        judge = evaluate.judge(setting, evaluate.View(), block)
        found["personal"] = judge(state, state.clients, ids, train, test)
    return {f"{model}/{m}": found[model][m] for model in found for m in METRICS}
