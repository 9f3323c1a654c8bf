"""Cohorts of clients in turn."""

import jax.numpy as jnp

from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne
from pfljax.core.types import Array, Cohort, Key, Metrics
from pfljax.selection.base import Selection
from pfljax.selection.draws import require_cohort


@component
def round_robin(cohort: AtLeastOne, num_clients: AtLeastOne) -> Selection:
    """Selects the next `cohort` clients by number, in a cycle.

    All take part equally often. The state is the next client, i32[].
    """
    require_cohort(cohort, num_clients)

    def choose(start: Array, key: Key) -> Array:
        return (start + jnp.arange(cohort, dtype=jnp.int32)) % num_clients

    def update(start: Array, members: Cohort, metrics: Metrics) -> Array:
        return (start + cohort) % num_clients

    return Selection(
        cohort=cohort,
        choose=choose,
        init=lambda: jnp.int32(0),
        update=update,
    )
