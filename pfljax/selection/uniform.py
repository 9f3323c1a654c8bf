"""Cohorts drawn uniformly, without replacement."""

from typing import Any

import jax.numpy as jnp

from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne
from pfljax.core.shuffle import index_shuffle
from pfljax.core.types import Array, Key
from pfljax.selection.base import Selection
from pfljax.selection.draws import require_cohort


@component
def uniform(cohort: AtLeastOne, num_clients: AtLeastOne) -> Selection:
    """Selects different clients uniformly, in O(cohort) time."""
    require_cohort(cohort, num_clients)

    def choose(state: Any, key: Key) -> Array:
        # The first ones of a shuffle that is never written out.
        return index_shuffle(jnp.arange(cohort), num_clients, key)

    return Selection(cohort=cohort, choose=choose, full=True)
