"""Uploads that do not arrive."""

import jax
import jax.numpy as jnp

from pfljax.channel.base import NONE, Channel
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.ranges import Share
from pfljax.core.types import Array, Cohort, Key


@component
def lost(*, share: Share = 0.1) -> Channel:
    """Loses each upload with probability `share`; the others are averaged.

    The client does not notice: it keeps its new state, and its bytes count as sent. If
    all uploads are lost, the server stays as it is.

    Args:
      share: probability that an upload is lost; 0 loses none.
    """
    if not share:
        return NONE._replace(stage="lose")

    def lose(key: Key, cohort: Cohort) -> Cohort:
        def arrives(client_id: Array) -> Array:
            # By client, not by its slot, which depends on the number of devices.
            client_key = jax.random.fold_in(derive(key, "lost"), client_id)
            return jax.random.uniform(client_key) >= share

        arrived = jax.vmap(arrives)(cohort.ids)
        return cohort._replace(mask=cohort.mask * arrived.astype(jnp.float32))

    return NONE._replace(lose=lose, stage="lose")
