"""Cohorts drawn in proportion to examples, with replacement."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne
from pfljax.core.types import Array, Key
from pfljax.selection.base import Selection


@component
def by_size(cohort: AtLeastOne, sizes: np.ndarray) -> Selection:
    """Selects clients with replacement, in proportion to their examples.

    FedProx, Algorithm 2: uploads are weighted by draws, not by examples. A client that
    is drawn twice trains once and counts twice. It takes O(cohort log num_clients)
    work.
    """
    if np.min(sizes) < 0 or np.sum(sizes) == 0:
        raise ValueError(f"expected examples to draw by, at least one; got {sizes}")
    ends = jnp.asarray(np.cumsum(sizes), jnp.int32)

    def choose(state: Any, key: Key) -> Array:
        # The owner of a random example: exact, for integers sum without rounding.
        example = jax.random.randint(key, (cohort,), 0, ends[-1])
        # From the right: an empty client ends where the one before does.
        owner = jnp.searchsorted(ends, example, side="right")
        return owner.astype(jnp.int32)

    return Selection(cohort=cohort, choose=choose, replacement=True)
