"""Cohorts of varying size: every client is drawn on its own."""

import math
from typing import Any

import jax

from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.ranges import AtLeastOne
from pfljax.core.types import Array, Key
from pfljax.selection.base import Selection
from pfljax.selection.draws import among, require_cohort


@component
def bernoulli(
    cohort: AtLeastOne,
    num_clients: AtLeastOne,
    *,
    places: AtLeastOne | None = None,
) -> Selection:
    """Selects each client with probability `cohort` / C.

    Shapes must stay the same, so there are `places` for the clients that are drawn, and
    some stay empty. By default they are three standard deviations more than the cohort,
    at most C. If more clients are drawn than there are places, which is rare by
    default, a uniform choice of them takes part. If none is drawn, the server's state
    stays the same. It takes O(C) work.

    Args:
      places: largest number of clients; None for three standard deviations more than
        the cohort.
    """
    require_cohort(cohort, num_clients)
    probability = cohort / num_clients
    if places is None:
        spread = 3 * math.sqrt(cohort * (1 - probability))
        places = min(cohort + math.ceil(spread), num_clients)
    if not cohort <= places <= num_clients:
        raise ValueError(
            f"bernoulli: places is {places}; expected {cohort} <= places <= "
            f"{num_clients}, from the cohort to all clients"
        )

    def choose(state: Any, key: Key) -> Array:
        coins = jax.random.uniform(derive(key, "coins"), (num_clients,))
        return among(derive(key, "places"), coins < probability, places)

    return Selection(cohort=places, choose=choose)
