"""What the toy's federation has beside its clients: rows of the server, and counts."""

import jax.numpy as jnp
import numpy as np

from pfljax import registry
from pfljax.conformance.toy import SIZES
from pfljax.core.types import ClientData, Examples

PUBLIC = 6  # rows of the server


def public():
    """The rows of the server, in a pool of their own."""
    rng = np.random.default_rng(1)
    pool = Examples(
        x=jnp.asarray(rng.normal(size=(PUBLIC, 3)), jnp.float32),
        y=jnp.asarray(rng.integers(0, 3, PUBLIC), jnp.int32),
    )
    return ClientData(examples=pool, offset=jnp.int32(0), size=jnp.int32(PUBLIC))


def filled_in(factory, rounds):
    """What a run of so many rounds fills in of a method's keywords."""
    return registry.given(
        factory,
        rounds=rounds,
        most_rows=max(SIZES),
        public_rows=PUBLIC,
        num_clients=len(SIZES),
    )
