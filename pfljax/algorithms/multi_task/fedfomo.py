"""FedFomo. Zhang et al., ICLR 2021, https://arxiv.org/abs/2012.08565 (Algorithm 1).

    Server   w_k of every client k, as last sent, and who has sent; P, how much each
             client gained by each other; a random number of each client
    Client   w_k, this client's own params
    Message  w_j of some other clients j, and who they are
    Upload   w_k, the gains g_kj, and of whom they are
With L_k the loss on its held-out rows, client k computes
g_kj = (L_k(w_k) - L_k(w_j)) / (||w_j - w_k|| + 1e-5)  of each model that it was sent,
begins at  w_k + sum_j max(g_kj, 0) (w_j - w_k) / sum_j max(g_kj, 0),  or at w_k where
nobody is better, and trains to its new w_k, by which it is judged. The server adds g_kj
to P_kj, and sends those of most P_kj, in random order where these are equal.

The last `holdout` of a client's training rows, at least one, are held out and never
trained on: methods do not see the validation rows of a run, by which it is judged. A
client with a single row trains on it as well. Whoever never took part is judged by the
mean of the models. Who is asked to take no step sends w_k as it was.

Differs from the paper: w_k is a client's model after its last training, which is also
what the server has of it, so it needs not be sent. Whether a round explores is drawn
once for all of its candidates.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms._affinity import Models
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation, tree
from pfljax.core.keys import derive
from pfljax.core.minibatches import divide
from pfljax.core.training import budget, fit, mean_over_rows
from pfljax.core.types import Algorithm, Local, Params, Task
from pfljax.registry import AtLeastOne, ProperShare, Share, component


class Server(NamedTuple):
    """What the server keeps of its clients."""

    models: Models
    gains: Any  # f32[C, C], P
    names: Any  # u32[C], of which random orders are drawn: numbers say nothing


class Message(NamedTuple):
    """The candidates of a client."""

    models: Params  # leaves [n, ...]
    ids: Any  # i32[n], C for a place that nobody fills


class Upload(NamedTuple):
    """Trained parameters, and what the candidates were worth."""

    w: Params
    gains: Any  # f32[n]
    ids: Any  # i32[n]


@component
def fedfomo(
    task: Task,
    local: Local,
    *,
    candidates: AtLeastOne = 5,
    explore: Share = 0.0,
    holdout: ProperShare = 0.2,
) -> Algorithm:
    """Builds FedFomo, which trains a client whom nobody helps as local training does.

    `candidates` models at most are sent to a client; with the probability `explore`
    they are any, whatever P says. `holdout` is the share of a client's rows on which it
    judges them.

    Args:
      candidates: models at most that a client is sent.
      explore: probability that they are any, whatever helped before.
      holdout: share of a client's rows on which it judges them.
    """

    def init(params, num_clients, key):
        models = affinity.first_models(params, num_clients)
        gains = jnp.zeros((num_clients, num_clients))
        return Server(models, gains, names=jax.random.bits(key, (num_clients,)))

    def message(turn, server, w):
        count = min(candidates, turn.num_clients - 1)
        ids = choose(turn, server, explore)[:count]
        known = affinity.others(server.models, turn.id)[ids] > 0
        models = tree.take(server.models.params, ids)
        return Message(models, jnp.where(known, ids, turn.num_clients))

    def train(turn, message, w, data):
        own, held_out = divide(data, 1 - holdout)
        loss = mean_loss(task, held_out, local.batch_size)
        gains = compute_gains(loss, w, message.models)
        gains = jnp.where(message.ids < turn.num_clients, gains, 0)
        steps = jnp.minimum(turn.steps, budget(local, own.size))
        first = tree.where(steps > 0, mix(w, message.models, gains), w)
        w, metrics = fit(task.loss, first, own, turn._replace(steps=steps), local)
        return w, Upload(w, gains, message.ids), metrics

    return alone(task, local)._replace(
        init=init,
        message=message,
        train=train,
        aggregate=receive,
        newcomer=lambda turn, server, data: affinity.mean(server.models),
        # Gains are no change of anything.
        origin=lambda message, w, upload: Upload(w, None, None),
    )


def choose(turn, server, explore):
    """All clients, the best candidates of this one first, i32[C]."""
    key = derive(turn.key, "candidates")
    lots = jax.vmap(lambda name: jax.random.uniform(jax.random.fold_in(key, name)))
    explores = jax.random.uniform(derive(key, "explore")) < explore
    row = jnp.where(explores, 0, tree.row_or_zeros(server.gains, turn.id))
    known = affinity.others(server.models, turn.id)
    return jnp.lexsort((lots(server.names), -row, -known))


def mean_loss(task, data, batch_size):
    """params -> their mean loss on these rows, in evaluation mode."""

    def loss(params):
        def value(batch):
            return task.loss(params, batch, None)

        return mean_over_rows(value, data, batch_size)

    return loss


def compute_gains(loss, w, models):
    """How much less the loss of each model is, by its distance from w, f32[n]."""
    before = loss(w)

    def one_model(model):
        distance = jnp.sqrt(tree.square_norm(tree.sub(model, w)))
        return (before - loss(model)) / (distance + 1e-5)

    # One after another: their batches would fill the memory.
    return jax.lax.map(one_model, models)


def mix(w, models, gains):
    """The mean of the models by their positive gains; w where there is none."""
    positive = jnp.where(gains > 0, gains, 0)
    mean = aggregation.mean(models, positive)
    return tree.where(jnp.any(gains > 0), mean, w)


def receive(server, uploads, cohort):
    """The server with the models and gains of who reported."""
    rows = aggregation.present_ids(cohort)[:, None]
    return server._replace(
        models=affinity.receive(server.models, uploads.w, cohort),
        gains=server.gains.at[rows, uploads.ids].add(uploads.gains, mode="drop"),
    )
