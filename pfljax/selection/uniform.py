"""Cohorts drawn uniformly, without replacement."""

import jax.numpy as jnp

from pfljax.core.shuffle import index_shuffle
from pfljax.selection.base import Selection


def uniform(cohort: int, num_clients: int) -> Selection:
    """`cohort` different clients, uniformly; O(cohort) work whatever `num_clients`."""
    if not 1 <= cohort <= num_clients:
        raise ValueError(
            f"the cohort is {cohort}, but {num_clients} clients can be chosen; "
            f"choose 1 <= cohort <= {num_clients}"
        )
    places = jnp.arange(cohort)
    return Selection(
        cohort=cohort,
        choose=lambda state, key: index_shuffle(places, num_clients, key),
    )
