"""Cohorts of the clients with the largest losses, of candidates drawn by size.

Cho, Wang, Joshi, 2020, https://arxiv.org/abs/2010.01243: pow-d, cpow-d and rpow-d,
section 4.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.minibatches import minibatch
from pfljax.core.ranges import AtLeastOne
from pfljax.core.training import full_loss
from pfljax.core.types import Array, ClientData, Key, Params, Task
from pfljax.selection.base import Selection, keep_state
from pfljax.selection.draws import draw_weighted, require_cohort
from pfljax.selection.reports import losses, record_losses


@component
def power_of_choice(
    cohort: AtLeastOne,
    sizes: np.ndarray,
    task: Task,
    *,
    candidates: AtLeastOne | None = None,
    loss: Literal["last", "all", "minibatch"] = "last",
    batch_size: AtLeastOne = 64,
) -> Selection:
    """Selects the clients with the largest losses among candidates drawn by size.

    Candidates are different clients, by default twice as many as the cohort. If they
    are as many as the cohort, only sizes count; if they are all clients, only losses.
    The state is the last known loss of each client, f32[C]. It takes O(C log C) work.
    The `loss` is:

        last       that of the client's last training; clients without one go first
                   (rpow-d)
        all        that of the server's new model over all training examples (pow-d)
        minibatch  that of the model over `batch_size` of them, drawn uniformly (cpow-d)

    A minibatch of all examples is pow-d. Only the candidates evaluate the model, one
    after another.

    Differs from the paper: no client evaluates the model of the first round, so that
    its cohort is drawn by size alone. Traffic and the clock do not count that
    candidates receive the model.

    Args:
      candidates: number of candidates; None for twice the cohort.
      loss: the loss of a candidate.
      batch_size: examples of a minibatch, and of those that are evaluated at once.
    """
    num_clients = len(sizes)
    require_cohort(cohort, num_clients)
    count = _count_candidates(candidates, cohort, num_clients)
    log_size = jnp.log(jnp.asarray(sizes, jnp.float32))  # -inf for none

    def draw(key: Key) -> Array:
        return draw_weighted(key, log_size, count)

    def choose(known: Array, key: Key) -> Array:
        ids = draw(key)
        # Of equal losses the first candidates: the order is that of the draw.
        _, places = jax.lax.top_k(known[ids], cohort)
        return ids[places]

    def evaluate(known: Array, model: Params, train: ClientData, key: Key) -> Array:
        # The key is that of the next `choose`: its candidates are these.
        ids = draw(key)
        batch_key = derive(key, "minibatch")

        def measure(client: Array) -> Array:
            data = train._replace(offset=train.offset[client], size=train.size[client])
            if loss == "all":
                return full_loss(task.loss, model, data, batch_size)
            client_key = jax.random.fold_in(batch_key, client)
            batch = minibatch(data, jnp.int32(0), client_key, batch_size)
            return task.loss(model, batch, None)

        return known.at[ids].set(losses({"loss": jax.lax.map(measure, ids)}))

    by_last = Selection(
        cohort=cohort,
        choose=choose,
        init=lambda: jnp.full(num_clients, jnp.inf, jnp.float32),
        update=record_losses,
    )
    if loss == "last":
        return by_last
    return by_last._replace(update=keep_state, evaluate=evaluate)


def _count_candidates(candidates: int | None, cohort: int, num_clients: int) -> int:
    """Returns the number of candidates; by default twice the cohort."""
    if candidates is None:
        return min(2 * cohort, num_clients)
    if not cohort <= candidates <= num_clients:
        raise ValueError(
            f"power_of_choice: candidates is {candidates}; expected {cohort} <= "
            f"candidates <= {num_clients}, from the cohort to all clients"
        )
    return candidates
