"""Compiles one program for the runs of a group, and calls it for some runs at a time.

Runs share nothing but the pool of examples, so that each device works alone: it maps
`one_run` over its own runs, one after another or `lanes` of them under one vmap.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pfljax import algorithms
from pfljax.core.types import Task
from pfljax.runs.settings import Experiment
from pfljax.runtime import signals
from pfljax.runtime.memory import free_bytes, needed_bytes
from pfljax.runtime.programs import memoize
from pfljax.simulate import components, size
from pfljax.simulate.shape import Shape
from pfljax.sweep.one_run import Inputs, Outcome, one_run, take_runs
from pfljax.sweep.pool import Data

AXIS = "runs"
GIB = 2**30


class Plan(NamedTuple):
    """Everything that the compiled program depends on."""

    experiment: Experiment  # the shared settings, with the largest cohort
    method: Callable  # another function if its file is loaded again
    shape: Shape
    devices: int
    per_call: int  # runs of one device in one call
    lanes: int  # of them under one vmap
    leaves: tuple[jax.ShapeDtypeStruct, ...]  # of (Data, Inputs of one run)
    treedef: Any


class Compiled(NamedTuple):
    """A program and the memory that it needs."""

    program: Any
    plan: Plan
    need: int  # bytes on each device


def run_all(
    experiment: Experiment,
    shape: Shape,
    data: Data,
    inputs: Inputs,
    num_devices: int,
    at_once: int | None = None,
    lanes: int | None = None,
    task: Task | None = None,
) -> Iterator[tuple[int, Outcome]]:
    """Yields (index, outcome) of each of the R runs, call after call.

    The number of runs in a call is limited by `at_once` and by memory. After SIGTERM
    no further call begins.

    Raises:
      MemoryError: not even one run fits.
    """
    # On a CPU short calls lose no time, and runs are written as they finish.
    if at_once is None and lanes is None and jax.default_backend() == "cpu":
        at_once = num_devices
    num_runs = len(inputs.seed)
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype),
        (data, take_runs(inputs, 0)),
    )
    # A tuple of leaves can be hashed, to find the program of an equal plan.
    leaves, treedef = jax.tree.flatten(shapes)
    plan = Plan(
        experiment=experiment,
        method=algorithms.method(experiment.algorithm.name),
        shape=shape,
        devices=num_devices,
        per_call=1,
        lanes=1,
        leaves=tuple(leaves),
        treedef=treedef,
    )
    fitting = _fitting(plan, num_runs, at_once or num_runs, lanes, task)
    everywhere, split = _shardings(num_devices)
    # Placed once for all calls: the pool is the largest argument.
    data = jax.device_put(data, everywhere)
    calls = _deal(inputs.cohort, num_runs, num_devices, fitting.plan.per_call)
    for runs in calls:
        if signals.terminated():
            return
        part = jax.device_put(take_runs(inputs, runs), split)
        outcomes = jax.device_get(fitting.program(data, part))
        # The last call may be filled with a run that is repeated.
        for run, slot in zip(*np.unique(runs, return_index=True), strict=True):
            yield int(run), take_runs(outcomes, slot)


def _deal(cohort: Any, num_runs: int, devices: int, per_call: int) -> np.ndarray:
    """The runs of each call, device by device, i[calls, devices * per_call].

    The longest runs come first, are distributed over the devices in turn, and the last
    run fills the last call. Five runs with the cohorts 1, 2, 3, 4, 5, on 2 devices with
    2 runs in a call, give the runs 4 2 on one device and 3 1 on the other in the first
    call, and 0 0 on both in the second.
    """
    order = np.arange(num_runs)
    if cohort is not None:
        order = np.argsort(-cohort, kind="stable")
    left_over = -num_runs % (devices * per_call)
    fill = np.repeat(order[-1:], left_over)
    order = np.append(order, fill)
    # Neighbours go to different devices, but a sharding has the runs of a device side
    # by side.
    dealt = order.reshape(-1, per_call, devices)
    return dealt.swapaxes(1, 2).reshape(-1, devices * per_call)


def _fitting(
    plan: Plan, num_runs: int, at_once: int, lanes: int | None, task: Task | None
) -> Compiled:
    """The program with as few calls of equal size as memory allows.

    If `at_once` runs need too much, a program of one run is compiled as well, and the
    memory of a further run is estimated from both. Calls that still need too much are
    halved. Example: of 10 runs with 50 bytes free, 10 in a call need 105 bytes and one
    needs 15. A further run needs 10, so that 3 fit beside the first: there are 3 calls
    of 4 runs.
    """
    free = free_bytes(plan.devices)
    # XLA aborts the process if it compiles a program that is far too large.
    model = task or components.make_task(plan.experiment, plan.shape)
    size.check_model(model, free)
    per_device = -(-num_runs // plan.devices)
    asked = _equal(per_device, max(1, at_once // plan.devices))
    chosen = _compiled_for(plan, asked, lanes, task)
    if chosen.need > free:
        single = _compiled_for(plan, 1, lanes, task)
        _check_fits(single, free)
        bytes_a_run = (chosen.need - single.need) / (asked - 1)
        further = int((free - single.need) / bytes_a_run)
        fewer = _equal(per_device, 1 + further)
        chosen = _compiled_for(plan, fewer, lanes, task)
    # Memory does not grow evenly: the estimate may be too high.
    while chosen.need > free and chosen.plan.per_call > 1:
        half = chosen.plan.per_call // 2
        chosen = _compiled_for(plan, half, lanes, task)
    return chosen


def _compiled_for(
    plan: Plan, per_call: int, lanes: int | None, task: Task | None
) -> Compiled:
    """The program with `per_call` runs of each device in one call."""
    # On a CPU a vmap gains no time and needs the memory of all its runs.
    wanted = 1 if jax.default_backend() == "cpu" else per_call
    if lanes is not None:
        wanted = lanes
    plan = plan._replace(per_call=per_call, lanes=min(wanted, per_call))
    # A user's own task cannot be hashed.
    program = _compile_plan(plan) if task is None else _compile(plan, task)
    return Compiled(program=program, plan=plan, need=needed_bytes(program))


def _check_fits(single: Compiled, free: float) -> None:
    """Raises a MemoryError if not even one run fits."""
    if single.need > free:
        raise MemoryError(
            f"one run needs {single.need / GIB:.2f} GiB on each of "
            f"{single.plan.devices} devices, which have {free / GIB:.2f} GiB free; "
            "choose a smaller width, fewer clients, or fewer seeds, whose examples lie "
            "in one pool"
        )


def _equal(count: int, most: int) -> int:
    """The size of the fewest equal calls of `count` runs, with at most `most` each."""
    calls = -(-count // most)
    return -(-count // calls)


@memoize
def _compile_plan(plan: Plan) -> Any:
    task = components.make_task(plan.experiment, plan.shape)
    return _compile(plan, task)


def _compile(plan: Plan, task: Task) -> Any:
    """The program (data, inputs of all slots) -> Outcome, for the plan's shapes."""
    data, one = jax.tree.unflatten(plan.treedef, plan.leaves)
    everywhere, split = _shardings(plan.devices)

    def on_device(data: Data, inputs: Inputs) -> Outcome:
        run = functools.partial(one_run, plan.experiment, plan.shape, task, data)
        # One vmap of all runs needs no loop around it.
        if plan.lanes == plan.per_call > 1:
            return jax.vmap(run)(inputs)
        batch = plan.lanes if plan.lanes > 1 else None
        return jax.lax.map(run, inputs, batch_size=batch)

    program = jax.shard_map(
        on_device,
        mesh=split.mesh,
        in_specs=(everywhere.spec, split.spec),
        out_specs=split.spec,
        # Runs do not communicate, so there is nothing to check.
        check_vma=False,
    )

    def all_slots(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        slots = plan.devices * plan.per_call
        return jax.ShapeDtypeStruct((slots, *leaf.shape), leaf.dtype)

    jitted = jax.jit(program, in_shardings=(everywhere, split))
    lowered = jitted.lower(data, jax.tree.map(all_slots, one))
    return lowered.compile()


def _shardings(num_devices: int) -> tuple[NamedSharding, NamedSharding]:
    """Two shardings: on every device, and split over the devices by run."""
    devices = np.array(jax.devices()[:num_devices])
    grid = Mesh(devices, (AXIS,))
    everywhere = NamedSharding(grid, PartitionSpec())
    split = NamedSharding(grid, PartitionSpec(AXIS))
    return everywhere, split
