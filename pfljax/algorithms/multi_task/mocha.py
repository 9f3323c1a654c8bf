"""MOCHA. Smith et al., NeurIPS 2017, https://arxiv.org/abs/1705.10467 (Algorithm 1).

    Server   b_t and w_t of every client t; Sigma, how clients are related
    Client   alpha_t, a dual variable for each training row and class
    Message  w_t, and how far it goes for a change of b_t
    Upload   the change of b_t
For a model that is linear in its parameters, with the hinge loss of each class against
all others (of two classes these are one problem twice). All clients together minimise
sum_t mean_i hinge(y_i <x_i, w_t>) + lam / 2 tr(W Sigma^-1 W^T)  over W = (w_1 .. w_C)
and Sigma >= 0 of trace 1. In the dual,  w_t = sum_s Sigma_ts b_s / lam  with
b_s = sum_i alpha_i x_i / n_s. Client t goes up in alpha_t (`_dual_ascent`) as if
its model moved by  rho Sigma_tt / lam  times the change of b_t, where
rho = max_t sum_s |Sigma_ts| / Sigma_tt  makes room for what the others do meanwhile.
After every `period` rounds the server sets  Sigma = (W^T W)^(1/2) / tr (W^T W)^(1/2),
where eigenvalues of W^T W are at least 1e-7. Sigma begins at 1 / C times the identity:
until then clients are support vector machines of their own, of the penalty C lam / 2.

`local` says how many rows are visited; it has no learning rate here. Less work is fewer
visits, and who drops out changes nothing (`selection.stragglers`).

`relations(server)` is how clients are related, for a figure. Whoever never took part is
judged by the mean of the models.

Differs from the paper: the bias of a model is penalised as a weight. After Sigma is set
anew, w_t is of the new Sigma for who trains on, as in the paper; the published code
keeps the old w_t. Clients are judged by the models of which Sigma was made.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms._affinity import Models
from pfljax.algorithms.local import local as alone
from pfljax.algorithms.multi_task._dual_ascent import ascend
from pfljax.core import aggregation, tree
from pfljax.core.types import Algorithm, Array, Local, Params, Task
from pfljax.registry import AtLeastOne, Positive, component

FLOOR = 1e-7  # of the eigenvalues of W^T W


class Server(NamedTuple):
    """What the server keeps of its clients."""

    models: Models  # w_t, by which clients are judged
    b: Params  # leaves [C, ...]
    sigma: Any  # f32[C, C]


class Message(NamedTuple):
    """A client's model, and how far a change of its b moves it."""

    w: Params
    stretch: Any  # f32[], rho Sigma_tt / lam


@component
def mocha(
    task: Task,
    local: Local,
    *,
    lam: Positive = 0.001,
    period: AtLeastOne = 10,
    most_rows: AtLeastOne = 1,
) -> Algorithm:
    """Builds MOCHA; a run of no more than `period` rounds leaves clients alone.

    Args:
      task: a model that is linear in its parameters, such as logistic.
      local: which rows a client visits.
      lam: the penalty of the models, divided among clients by their relations.
      period: rounds between two updates of these; 100 in the published code, of 1,000.
      most_rows: training rows of the largest client.
    """

    def init_client(params, client_id, key):
        return jnp.zeros((most_rows, task.num_classes))

    def message(turn, server, alpha):
        row = tree.row_or_zeros(server.sigma, turn.id) / lam
        w = aggregation.weighted_sum(server.b, row)
        return Message(w, room(server.sigma) * row.at[turn.id].get(mode="clip"))

    def train(turn, message, alpha, data):
        w, stretch = message
        return ascend(task, w, alpha, data, turn, local, stretch)

    def aggregate(server, changes, cohort):
        ids = aggregation.present_ids(cohort)
        b = add(server.b, ids, changes)
        w = products(server.sigma / lam, b)
        heard = server.models.heard.at[ids].set(1, mode="drop")
        is_time = (cohort.round + 1) % period == 0
        sigma = jax.lax.cond(is_time, relate, lambda w: server.sigma, w)
        return Server(Models(w, heard), b, sigma)

    return alone(task, local)._replace(
        init=init,
        init_client=init_client,
        message=message,
        train=train,
        aggregate=aggregate,
        personal=lambda turn, server, alpha, data: client_model(turn, server),
        newcomer=lambda turn, server, data: client_model(turn, server),
        origin=lambda message, alpha, change: tree.zeros(change),
        uploads_by_client=True,
        linear=True,
    )


def init(params, num_clients, key):
    """Models of zeros, and nobody related."""
    models = affinity.first_models(tree.zeros(params), num_clients)
    sigma = jnp.eye(num_clients) / num_clients
    return Server(models, b=models.params, sigma=sigma)


def client_model(turn, server):
    """w_t; the mean of those heard for a client that never was."""
    w = tree.row_or_zeros(server.models.params, turn.id)
    heard = affinity.has_sent(server.models, turn.id)
    return tree.where(heard, w, affinity.mean(server.models))


def relations(server: Server) -> Array:
    """Sigma as correlations, f32[C, C]: 1 for clients whose models are parallel."""
    spread = jnp.sqrt(jnp.diag(server.sigma))
    return server.sigma / jnp.outer(spread, spread)


def room(sigma):
    """rho, f32[]: 1 where nobody is related, C where all are alike."""
    return jnp.max(jnp.sum(jnp.abs(sigma), 1) / jnp.diag(sigma))


def add(stacked, ids, changes):
    """The rows with the changes of who reported."""

    def on_leaf(leaf, new):
        return leaf.at[ids].add(new, mode="drop")

    return jax.tree.map(on_leaf, stacked, changes)


def products(matrix, stacked):
    """Each row of the matrix times the stacked models."""

    def on_leaf(leaf):
        return jnp.tensordot(matrix, leaf, 1, precision="highest")

    return jax.tree.map(on_leaf, stacked)


def relate(models):
    """Sigma of the models W, leaves [C, ...]."""
    leaves = [leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(models)]
    # Singular values, for roots of the eigenvalues of W^T W have half of the digits.
    u, roots, _ = jnp.linalg.svd(jnp.concatenate(leaves, 1), full_matrices=False)
    floor = FLOOR**0.5
    above = jnp.maximum(roots - floor, 0)
    root = floor * jnp.eye(len(u)) + jnp.matmul(u * above, u.T, precision="highest")
    return root / jnp.trace(root)
