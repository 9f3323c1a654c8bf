"""Clients that do a part of their work, or none."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.factories import validate
from pfljax.core.keys import derive
from pfljax.core.ranges import Epochs, Share
from pfljax.core.types import Array, Key
from pfljax.selection.base import Selection


@validate
def stragglers(
    selection: Selection,
    share: Share,
    epochs: Epochs,
    drop: bool = False,
) -> Selection:
    """Lets round(share M) stragglers of `selection` do part of their work, or none.

    A straggler runs a number of whole epochs that is drawn uniformly from those below
    E; if E is at most 1 or None, it runs 1 to steps - 1 steps. With `drop` its work is
    discarded, as in FedAvg (FedProx, section 5.2).
    """
    count = round(share * selection.cohort)
    slow = jnp.arange(selection.cohort) < count

    def work(state: Any, key: Key, ids: Array, steps: Array) -> tuple[Array, Array]:
        steps, mask = selection.work(state, derive(key, "work"), ids, steps)
        # A part is counted in whole epochs, or in steps if there is one epoch.
        units = everything = jnp.maximum(steps, 2)
        if epochs is not None and epochs > 1:
            units = math.ceil(epochs)
            everything = epochs
        done = jax.random.randint(derive(key, "part"), steps.shape, 1, units)
        # Exactly `count` of them, at places in the cohort that change with the round.
        late = jax.random.permutation(derive(key, "who"), slow)
        part = steps * done // everything
        if isinstance(everything, float):
            # `steps` are of E epochs, rounded: those of `done` are the nearest.
            part = jnp.round(steps * (done / everything)).astype(jnp.int32)
        part = jnp.clip(part, 1, steps)
        if drop:
            mask = jnp.where(late, 0.0, mask)
        return jnp.where(late, part, steps), mask

    return selection._replace(work=work)
