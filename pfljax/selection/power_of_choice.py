"""Cohorts of the clients with the largest losses, of candidates drawn by rows.

Cho, Wang, Joshi, 2020, https://arxiv.org/abs/2010.01243: pow-d, cpow-d and rpow-d,
section 4.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.keys import derive
from pfljax.core.minibatches import minibatch
from pfljax.core.training import mean_over_rows
from pfljax.core.types import Array, Batch, ClientData, Key, Params, Task
from pfljax.registry import AtLeastOne, checked
from pfljax.selection.base import Selection, learns_nothing
from pfljax.selection.draws import require_cohort, weighted
from pfljax.selection.reports import kept_losses, losses_of

Judge = Literal["last", "rows", "minibatch"]


@checked
def power_of_choice(
    cohort: AtLeastOne,
    sizes: np.ndarray,
    task: Task,
    *,
    candidates: AtLeastOne | None = None,
    judge: Judge = "last",
    batch_size: AtLeastOne = 64,
) -> Selection:
    """Of `candidates` drawn by rows, the `cohort` of largest losses.

    Candidates are different clients, twice the cohort by default. As many as the cohort
    are a draw by rows alone; all clients are the greediest. The state is the last known
    loss of each client, f32[C]. O(C log C) work. A loss is, by `judge`:

        last       that of the client's last training; who has none goes first (rpow-d)
        rows       of the server's new model, over all of its training rows (pow-d)
        minibatch  of that model, over `batch_size` of them, uniformly drawn (cpow-d)

    Of rows, `batch_size` are judged at once. A minibatch of all rows is pow-d. Only the
    candidates judge, one after another.

    Differs from the paper: nobody judges the model of the first round, whose cohort is
    drawn by rows alone. Traffic and the clock leave out that candidates get the model.

    Args:
      candidates: clients drawn, of which the largest losses win; None, twice the
        cohort.
      judge: which loss counts.
      batch_size: rows of a minibatch, and of those judged at once.
    """
    num_clients = len(sizes)
    require_cohort(cohort, num_clients)
    if candidates is None:
        candidates = min(2 * cohort, num_clients)
    _require_candidates(cohort, candidates, num_clients)
    loss_of = _of_rows if judge == "rows" else _of_minibatch
    log_rows = jnp.log(jnp.asarray(sizes, jnp.float32))  # -inf for none

    def candidates_of(key: Key) -> Array:
        return weighted(key, log_rows, candidates)

    def choose(losses: Array, key: Key) -> Array:
        ids = candidates_of(key)
        # Of equal losses the first candidates: the order is that of the draw.
        _, places = jax.lax.top_k(losses[ids], cohort)
        return ids[places]

    def judged(losses: Array, model: Params, train: ClientData, key: Key) -> Array:
        # The key is that of the coming `choose`: its candidates are these.
        ids = candidates_of(key)
        batch_key = derive(key, "minibatch")

        def of_client(client: Array) -> Array:
            data = train._replace(offset=train.offset[client], size=train.size[client])
            client_key = jax.random.fold_in(batch_key, client)
            return loss_of(task, model, data, client_key, batch_size)

        of_candidates = jax.lax.map(of_client, ids)
        return losses.at[ids].set(losses_of({"loss": of_candidates}))

    by_last = Selection(
        cohort=cohort,
        choose=choose,
        init=lambda: jnp.full(num_clients, jnp.inf, jnp.float32),
        update=kept_losses,
    )
    if judge == "last":
        return by_last
    return by_last._replace(update=learns_nothing, judge=judged)


def _require_candidates(cohort: int, candidates: int, num_clients: int) -> None:
    if not cohort <= candidates <= num_clients:
        raise ValueError(
            f"power_of_choice: candidates is {candidates}; expected {cohort} <= "
            f"candidates <= {num_clients}, from the cohort to all clients"
        )


def _of_minibatch(
    task: Task,
    model: Params,
    data: ClientData,
    key: Key,
    batch_size: int,
) -> Array:
    """The loss of some of a client's rows, in evaluation mode, f32[]."""
    batch = minibatch(data, jnp.int32(0), key, batch_size)
    return task.loss(model, batch, None)


def _of_rows(
    task: Task,
    model: Params,
    data: ClientData,
    key: Key,
    batch_size: int,
) -> Array:
    """The mean loss over all of a client's rows, f32[]."""

    def of_batch(batch: Batch) -> Array:
        return task.loss(model, batch, None)

    return mean_over_rows(of_batch, data, batch_size)
