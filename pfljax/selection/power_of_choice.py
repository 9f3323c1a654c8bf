"""Cohorts of the clients with the largest losses, of candidates drawn by rows.

Cho, Wang, Joshi, 2020, https://arxiv.org/abs/2010.01243: rpow-d, section 4.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.types import Array, Key
from pfljax.registry import AtLeastOne, checked
from pfljax.selection.base import Selection
from pfljax.selection.draws import require_cohort, weighted
from pfljax.selection.reports import kept_losses


@checked
def power_of_choice(
    cohort: AtLeastOne,
    sizes: np.ndarray,
    *,
    candidates: AtLeastOne | None = None,
) -> Selection:
    """Of `candidates` drawn by rows, the `cohort` of largest last training losses.

    Candidates are different clients, twice the cohort by default. As many as the cohort
    are a draw by rows alone; all clients are the greediest. Who has not reported yet
    goes first. The state is the last loss of each client, f32[C]. O(C log C) work.

    This is rpow-d: losses are those of a client's last training. pow-d and cpow-d have
    all candidates judge the new model first, which no contract here does.

    Args:
      candidates: clients drawn, of which the largest losses win; None, twice the
        cohort.
    """
    num_clients = len(sizes)
    require_cohort(cohort, num_clients)
    if candidates is None:
        candidates = min(2 * cohort, num_clients)
    if not cohort <= candidates <= num_clients:
        raise ValueError(
            f"power_of_choice: candidates is {candidates}; expected {cohort} <= "
            f"candidates <= {num_clients}, from the cohort to all clients"
        )
    log_rows = jnp.log(jnp.asarray(sizes, jnp.float32))  # -inf for none

    def choose(losses: Array, key: Key) -> Array:
        ids = weighted(key, log_rows, candidates)
        # Of equal losses the first candidates: the order is that of the draw.
        _, places = jax.lax.top_k(losses[ids], cohort)
        return ids[places]

    return Selection(
        cohort=cohort,
        choose=choose,
        init=lambda: jnp.full(num_clients, jnp.inf, jnp.float32),
        update=kept_losses,
    )
