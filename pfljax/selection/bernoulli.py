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

    Shapes stay, so there are `places` for those drawn, and some stay empty. By default
    places are three standard deviations more than the cohort, at most C. More clients
    than places are cut to a uniform choice of them: rarely by default, never where
    places = C. If no client is drawn, the server's state stays. O(C) work.

    Args:
      places: clients at most; None, three standard deviations above the cohort.
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
