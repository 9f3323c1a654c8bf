"""Refuses runs that are far too large for the machine, before anything is compiled.

XLA would abort the process instead of raising an error. Only states and models are
counted here; `width` asks XLA how much memory the programs need.
"""

import math
from typing import Any

import jax

from pfljax.core import tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import Task
from pfljax.engine.offload_programs import Programs
from pfljax.engine.state import init_stacks
from pfljax.runtime import memory
from pfljax.runtime.processes import ask
from pfljax.simulate import simulation
from pfljax.simulate.simulation import Simulation

MOST_NUMBERS = 2**31 - 1  # of one array of a model: XLA counts them in 32 bits
GB = 1e9


def free(sim: Simulation) -> float:
    """Free bytes of a device by process 0, so that all processes decide alike."""
    return ask(memory.free_bytes, sim.setting.mesh.size if sim.setting.mesh else 1)


def mean_parameters(sim: Simulation, num_clients: int) -> tuple[int, int]:
    """The parameters of a client's model that are trained, and all of them, as means.

    Frozen leaves are not trained, and adapters are no parameters of the whole model.
    """
    stacks = init_stacks(sim.setting._replace(mesh=None), sim.task, num_clients)
    trained, whole = 0, 0
    for stack in stacks:
        params = shapes_of_model(stack.task)
        complete = jax.eval_shape(stack.task.complete, params)
        trained += len(stack.ids) * _count(params)
        whole += len(stack.ids) * _count(complete)
    return round(trained / num_clients), round(whole / num_clients)


def _count(shapes: Any) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))


def check(sim: Simulation) -> None:
    """Refuses a model or states of clients that do not fit on a device.

    Raises:
      ValueError: they are too large.
    """
    room = free(sim)
    params = max(check_model(each.task, room) for each in sim.architectures)
    leaves = jax.tree.leaves(simulation.abstract(sim))
    needed = sum(map(_bytes_on_a_device, leaves))
    # Clients that train at the same time have a copy of the model each.
    clients_at_once = sim.setting.width or 1
    needed += clients_at_once * params
    if sim.paging is not None:
        needed += _bytes_of_pages(sim, sim.paging)
    if needed > room:
        raise ValueError(
            f"states of server and clients take {needed / GB:.2f} GB on each device, "
            f"and {room / GB:.2f} GB are free; choose a smaller model, fewer clients "
            "or a smaller width, or --state-storage disk"
        )


def _bytes_of_pages(sim: Simulation, programs: Programs) -> int:
    """Bytes of the clients that come from a store for one call, on each device."""
    devices = sim.setting.mesh.size if sim.setting.mesh else 1
    stacks = programs.stacks
    return sum(each.resident // devices * each.layout.nbytes for each in stacks)


def check_model(task: Task, room: float) -> int:
    """Bytes of the model's parameters.

    Raises:
      ValueError: they are more than `room`, or too many in one array.
    """
    shapes = shapes_of_model(task)
    counts = [math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes)]
    needed = tree.nbytes(shapes)
    text = f"the model has {sum(counts)} parameters, {needed / GB:.2f} GB"
    if needed > room:
        raise ValueError(
            f"{text}, and {room / GB:.2f} GB are free on a device; choose a smaller one"
        )
    if max(counts, default=0) > MOST_NUMBERS:
        raise ValueError(
            f"{text}, of which one array has {max(counts)}; choose a smaller model: "
            f"an array has at most {MOST_NUMBERS}"
        )
    return needed


def _bytes_on_a_device(leaf: Any) -> int:
    """Bytes of an abstract array's part on one device."""
    shape = leaf.shape
    if leaf.sharding is not None:
        shape = leaf.sharding.shard_shape(shape)
    return math.prod(shape) * leaf.dtype.itemsize
