"""Uploads that do not arrive."""

import jax
import jax.numpy as jnp

from pfljax.channel.base import NONE, Channel
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.ranges import BelowOne
from pfljax.core.types import Array, Key


@component
def lost(*, share: BelowOne = 0.1) -> Channel:
    """Loses the uploads of a client in a round with probability `share`.

    The other uploads are averaged. The next message tells a client whether its upload
    arrived, and a client whose upload was lost goes back to its state before the round.
    Its bytes count as sent. If all uploads are lost, the server stays as it is.

    Args:
      share: probability that the uploads of a client are lost; 0 loses none.
    """
    if not share:
        return NONE._replace(stage="lose")

    def arrives(key: Key, ids: Array) -> Array:
        def client_arrives(client_id: Array) -> Array:
            # By client, not by its slot, which depends on the number of devices.
            client_key = jax.random.fold_in(derive(key, "lost"), client_id)
            return jax.random.uniform(client_key) >= share

        return jax.vmap(client_arrives)(ids).astype(jnp.float32)

    return NONE._replace(arrives=arrives, stage="lose")
