"""Whether a cohort's uploads are summed as they come, or stacked for the server.

A mean needs no upload but the sum so far. A thousand uploads of ResNet-18 are 45 GB as
a stack, and 45 MB as a sum. Stacked ones are summed in the cohort's order, in whatever
chunks they were trained. So few of them stay stacked: their mean has the same bits at
every width.
"""

from typing import Any

import jax

from pfljax.channel import Channel, as_received
from pfljax.core import aggregation, tree
from pfljax.core.aggregation import Averaging
from pfljax.core.types import Array, Cohort
from pfljax.engine.setting import Setting

STACKED_BYTES = 2**28  # of the uploads of one device: more of them are summed


def clients_at_once(setting: Setting, slots: int) -> int:
    """How many of its `slots` clients a device trains under one vmap."""
    width = setting.width
    if setting.mesh is not None:
        # Slots are more than the cohort: a vmap of all would train the empty ones.
        width = width or -(-setting.selection.cohort // setting.mesh.size)
    return min(width or slots, slots)


def upload_weights(setting: Setting, server: Any, cohort: Cohort) -> Array | None:
    """What each upload counts for in the sum, f32[slots]; None where they are stacked.

    By shapes alone, so that a run that goes on chooses the same.
    """
    average = setting.algorithm.aggregate
    if not isinstance(average, Averaging) or not _is_separate(setting.channel):
        return None
    if setting.selection.observe is not None:
        return None  # it looks at each
    if setting.groups is not None or setting.algorithm.architecture is not None:
        return None  # whose uploads go into their places, or are told apart, first
    devices = setting.mesh.size if setting.mesh else 1
    slots = cohort.ids.shape[0] // devices
    # The mean is the new server: an upload has its shapes.
    stacked_bytes = slots * tree.nbytes(server)
    if clients_at_once(setting, slots) == slots or stacked_bytes <= STACKED_BYTES:
        return None
    return average.weight_of(cohort)


def _is_separate(channel: Channel | None) -> bool:
    """Whether the channel looks at each upload on its own, at its client."""
    return channel is None or channel.receive is as_received


def divide_sums(sums: Any, weight: Array) -> Any:
    """The mean of all uploads, of the devices' weighted sums [D, ...]."""
    total = jax.tree.map(lambda leaf: leaf.sum(0), sums)
    return aggregation.over_weight(total, weight)
