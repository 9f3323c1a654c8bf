"""Evaluates many clients by architecture, and in blocks.

A block limits the memory of an evaluation: the personal models of 100,000 clients would
not fit into memory in one call.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from pfljax.core.types import ClientData, RunState
from pfljax.engine import mesh
from pfljax.evaluation.uncertainty import OodExamples
from pfljax.simulate.simulation import Architecture, Simulation

Part = ClientData | OodExamples  # by client, except for the pool of `examples`
Values = dict[str, np.ndarray]
States = Callable[[np.ndarray], Any]  # ids -> their stacked states, then padding


def by_architecture(
    sim: Simulation,
    evaluator: Callable[[Architecture], Callable[..., Any]],
    state: RunState,
    states: States,
    ids: np.ndarray,
    parts: tuple[Part, ...],
) -> Values:
    """`in_blocks` of each architecture's evaluator, in the order of the clients."""
    groups = sim.setting.groups
    if groups is None:
        evaluate = evaluator(sim.architectures[0])
        return in_blocks(evaluate, state, sim, states, ids, parts)
    number = groups.of(ids)
    whole: Any = None
    for group, architecture in enumerate(sim.architectures):
        (which,) = np.nonzero(number == group)
        if not len(which):  # few newcomers may leave a group empty
            continue
        group_parts = tuple(take(part, which) for part in parts)
        evaluate = evaluator(architecture)
        in_group = in_blocks(evaluate, state, sim, states, ids[which], group_parts)
        whole = _write(whole, which, in_group, len(ids))
    return whole


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
) -> Any:
    """evaluate(state, clients, ids, *parts), in blocks if there are many clients."""
    ids = ids.astype(np.int32)  # JAX would compile a conversion
    if len(ids) <= sim.block:
        return jax.device_get(evaluate(state, states(ids), ids, *parts))
    whole: Any = None
    grid = sim.setting.mesh
    devices = grid.size if grid and grid.pin_clients else 1
    for block in mesh.blocks(devices, len(ids), sim.block):
        # An index past the end is padding, and reads the last client.
        existing = np.minimum(block, len(ids) - 1)
        block_parts = [take(part, existing) for part in parts]
        block_ids = ids[existing]
        in_block = evaluate(state, states(block_ids), block_ids, *block_parts)
        whole = _write(whole, block, jax.device_get(in_block), len(ids))
    return whole


def _write(whole: Any, where: np.ndarray, part: Any, count: int) -> Any:
    """`whole`, the arrays of `count` clients or None, with those of some clients.

    An index past the end is padding.
    """
    if whole is None:
        whole = jax.tree.map(lambda a: np.empty((count, *a.shape[1:]), a.dtype), part)
    real = where < count
    leaves = zip(jax.tree.leaves(whole), jax.tree.leaves(part), strict=True)
    for target, values in leaves:
        target[where[real]] = values[real]
    return whole
