"""Sums a cohort's uploads as they are made, or stacks them for the server.

A mean needs only the sum so far. A thousand uploads of ResNet-18 are 45 GB as a stack,
and 45 MB as a sum. Stacked uploads are summed in the order of the cohort, in whatever
chunks they were trained, so that their mean has the same bits at every width. Small
ones therefore stay stacked.
"""

from typing import Any

import jax

from pfljax.channel import as_received
from pfljax.core import aggregation, tree
from pfljax.core.aggregation import Averaging
from pfljax.core.types import Array, Cohort
from pfljax.engine.setting import Setting

STACKED_BYTES = 2**28  # of the uploads of a device, above which they are summed


def clients_at_once(setting: Setting, slots: int) -> int:
    """The number of its `slots` that a device trains under one vmap."""
    width = setting.width
    if setting.mesh is not None:
        # There are more slots than clients, and a vmap would train the empty ones.
        width = width or -(-setting.selection.cohort // setting.mesh.size)
    return min(width or slots, slots)


def upload_weights(setting: Setting, server: Any, cohort: Cohort) -> Array | None:
    """The weight of each upload in the sum, f32[slots]; None if they are stacked.

    It depends on shapes alone, so that a resumed run makes the same choice.
    """
    average = setting.algorithm.aggregate
    channel = setting.channel
    if not isinstance(average, Averaging):
        return None
    # Others need each upload: the channel, the selection, and groups.
    if channel is not None and channel.receive is not as_received:
        return None
    if setting.selection.observe is not None:
        return None
    if setting.groups is not None or setting.algorithm.architecture is not None:
        return None
    devices = setting.mesh.size if setting.mesh else 1
    slots = cohort.ids.shape[0] // devices
    # The mean is the new server, so that an upload has its shapes.
    stacked_bytes = slots * tree.nbytes(server)
    if clients_at_once(setting, slots) == slots or stacked_bytes <= STACKED_BYTES:
        return None
    return average.weight_of(cohort)


def divide_sums(sums: Any, weight: Array) -> Any:
    """The mean of all uploads from the devices' weighted sums [D, ...]."""
    total = jax.tree.map(lambda leaf: leaf.sum(0), sums)
    return aggregation.over_weight(total, weight)
