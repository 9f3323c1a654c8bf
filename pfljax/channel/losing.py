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

    The client does not know: it keeps what it trained, and its bytes were sent. If all
    are lost, the server stays as it is. `share` = 0 loses none.

    Args:
      share: probability that an upload is lost.
    """
    if not share:
        return NONE._replace(stage="lose")

    def lose(key: Key, cohort: Cohort) -> Cohort:
        def arrives(client_id: Array) -> Array:
            # By the client, not by its place: devices deal cohorts to other places.
            client_key = jax.random.fold_in(derive(key, "lost"), client_id)
            return jax.random.uniform(client_key) >= share

        arrived = jax.vmap(arrives)(cohort.ids)
        return cohort._replace(mask=cohort.mask * arrived.astype(jnp.float32))

    return NONE._replace(lose=lose, stage="lose")
