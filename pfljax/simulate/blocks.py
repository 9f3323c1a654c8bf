"""Values of many clients: one architecture after another, and block by block.

A block of clients bounds what an evaluation holds: of 100,000 clients with personal
models a single call would not fit into the memory.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from pfljax.core.types import ClientData, RunState
from pfljax.engine import mesh
from pfljax.evaluation.uncertainty import OodExamples
from pfljax.simulate.simulation import Architecture, Simulation

Part = ClientData | OodExamples  # by client, but for the pool of `examples`
Values = dict[str, np.ndarray]
States = Callable[[np.ndarray], Any]  # ids -> their stacked states, padding behind


def by_architecture(
    sim: Simulation,
    evaluator: Callable[[Architecture], Callable[..., Any]],
    state: RunState,
    states: States,
    ids: np.ndarray,
    parts: tuple[Part, ...],
) -> Values:
    """`in_blocks` of each architecture's evaluator; values in the clients' order."""
    groups = sim.setting.groups
    if groups is None:
        evaluate = evaluator(sim.architectures[0])
        return in_blocks(evaluate, state, sim, states, ids, parts)
    number = groups.of(ids)
    values: Values = {}
    for group, architecture in enumerate(sim.architectures):
        (which,) = np.nonzero(number == group)
        if not len(which):  # none of few newcomers
            continue
        theirs = tuple(take(part, which) for part in parts)
        evaluate = evaluator(architecture)
        of_group = in_blocks(evaluate, state, sim, states, ids[which], theirs)
        for name, array in of_group.items():
            if name not in values:
                values[name] = np.empty((len(ids), *array.shape[1:]), array.dtype)
            values[name][which] = array
    return values


def take(part: Part, which: np.ndarray) -> Part:
    """The examples of some of the clients, or the classes that they hold."""
    if isinstance(part, OodExamples):
        return part._replace(held=part.held[which])
    offset = np.asarray(part.offset)[which]
    size = np.asarray(part.size)[which]
    return part._replace(offset=offset, size=size)


def in_blocks(
    evaluate: Callable[..., Any],
    state: RunState,
    sim: Simulation,
    states: States,
    ids: np.ndarray,
    parts: tuple[Part, ...],
) -> Values:
    """evaluate(state, clients, ids, *parts), in blocks if there are many clients."""
    ids = ids.astype(np.int32)  # as JAX has them: it would compile the conversion
    if len(ids) <= sim.block:
        return jax.device_get(evaluate(state, states(ids), ids, *parts))
    by_client: Values = {}
    grid = sim.setting.mesh
    devices = grid.size if grid and grid.pin_clients else 1
    for block in mesh.blocks(devices, len(ids), sim.block):
        # Nobody is taken for the last one; of another device's rows it reads its own.
        existing = np.minimum(block, len(ids) - 1)
        block_parts = [take(part, existing) for part in parts]
        block_ids = ids[existing]
        of_block = evaluate(state, states(block_ids), block_ids, *block_parts)
        real = block < len(ids)
        for name, values in jax.device_get(of_block).items():
            if name not in by_client:
                by_client[name] = np.empty((len(ids), *values.shape[1:]), values.dtype)
            by_client[name][block[real]] = values[real]
    return by_client
