"""The malicious clients of a run: a fixed share, drawn from the key of the run.

Attacks on channels and poisoned labels both use these functions, so that they affect
the same clients. The clients of a smaller share are a subset of those of a larger one.
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from pfljax.core.keys import derive
from pfljax.core.ranges import Range
from pfljax.core.types import Array, Key

Attackers = Annotated[
    float, Range(lambda value: 0 <= value < 1, "a share of the clients, 0 <= share < 1")
]


def count(num_clients: int, share: float) -> int:
    """The number of malicious clients.

    Raises:
      ValueError: the share rounds to no client, or to all of them.
    """
    number = round(share * num_clients)
    if share and not 0 < number < num_clients:
        who = "everybody" if number else "nobody"
        raise ValueError(
            f"attackers is {share}, which is {who} of {num_clients} clients; give a "
            f"share between {1 / num_clients:.3g} and {1 - 1 / num_clients:.3g}"
        )
    return number


def draw(key: Key, num_clients: int, share: float) -> Array:
    """Whether each client is malicious, bool[C]; `key` is that of the run."""
    draws = jax.random.uniform(derive(key, "malicious"), (num_clients,))
    rank = jnp.argsort(jnp.argsort(draws))
    return rank < count(num_clients, share)
