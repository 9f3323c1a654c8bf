"""FedFomo: clients mix the models of others that do better on their own examples.

Zhang et al., ICLR 2021, https://arxiv.org/abs/2012.08565 (Algorithm 1).

    Server   w_k of every client k, as last sent, and which clients have sent; P, the
             gains of each client from each other; a random number of each client
    Client   w_k, the parameters of this client
    Message  w_j of some other clients j, and their ids
    Upload   w_k, the gains g_kj, and the ids that they belong to

Let L_k be the loss on the held-out examples of client k. It computes
g_kj = (L_k(w_k) - L_k(w_j)) / (||w_j - w_k|| + 1e-5)  for each model that it was sent.
It starts from  w_k + sum_j max(g_kj, 0) (w_j - w_k) / sum_j max(g_kj, 0),  or from w_k
if no other model is better, and trains to its new w_k, with which it is evaluated. The
server adds g_kj to P_kj, and sends the models with the largest P_kj, in random order
among equal ones.

The last `holdout` of a client's training examples, at least one, are held out and never
trained on: methods do not see the validation examples of a run, which evaluate it. A
client with a single example trains on it as well. A client that never took part is
evaluated with the mean of the models. A client with a budget of no step sends w_k as it
was.

Differs from the paper: w_k is the client's model after its last training, which the
server has too, so it need not be sent. Whether a round explores is drawn once for all
of its candidates.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms._affinity import Models
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.minibatches import divide, divide_size
from pfljax.core.ranges import AtLeastOne, ProperShare, Share
from pfljax.core.training import budget, fit, full_loss
from pfljax.core.types import Algorithm, Local, Params, Task


class Server(NamedTuple):
    """The models of the clients, and their gains."""

    models: Models
    gains: Any  # f32[C, C], P
    names: Any  # u32[C], random, so that no order depends on the clients' ids


class Message(NamedTuple):
    """The candidates of a client."""

    models: Params  # leaves [n, ...]
    ids: Any  # i32[n], C for an empty place


class Upload(NamedTuple):
    """Trained parameters, and the gains from the candidates."""

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
    """Builds FedFomo; a client that gains from nobody trains as in local training.

    Args:
      candidates: largest number of models that are sent to a client.
      explore: probability that they are chosen at random, whatever P is.
      holdout: share of a client's examples on which it computes the gains.
    """

    def init(params, num_clients, key):
        models = affinity.first_models(params, num_clients)
        gains = jnp.zeros((num_clients, num_clients))
        return Server(models, gains, names=jax.random.bits(key, (num_clients,)))

    def training_steps(steps, size):
        training, _ = divide_size(size, 1 - holdout)
        return jnp.minimum(steps, budget(local, training))

    def message(turn, server, w):
        count = min(candidates, turn.num_clients - 1)
        ids = choose(turn, server, explore)[:count]
        known = affinity.others(server.models, turn.id)[ids] > 0
        models = tree.take(server.models.params, ids)
        return Message(models, jnp.where(known, ids, turn.num_clients))

    def train(turn, message, w, data):
        training, held_out = divide(data, 1 - holdout)

        def loss(w):
            return full_loss(task.loss, w, held_out, local.batch_size)

        gains = compute_gains(loss, w, message.models)
        gains = jnp.where(message.ids < turn.num_clients, gains, 0)
        steps = training_steps(turn.steps, data.size)
        first = tree.where(steps > 0, mix(w, message.models, gains), w)
        w, metrics = fit(task.loss, first, training, turn._replace(steps=steps), local)
        return w, Upload(w, gains, message.ids), metrics

    return alone(task, local)._replace(
        init=init,
        message=message,
        train=train,
        work=lambda steps, size, is_first: training_steps(steps, size),
        aggregate=receive,
        newcomer=lambda turn, server, data: affinity.mean(server.models),
        # Gains are no change.
        origin=lambda message, w, upload: Upload(w, None, None),
    )


def choose(turn, server, explore):
    """All clients, the best candidates of this one first, i32[C]."""
    key = derive(turn.key, "candidates")
    lots = jax.vmap(lambda name: jax.random.uniform(jax.random.fold_in(key, name)))
    explores = jax.random.uniform(derive(key, "explore")) < explore
    gains = jnp.where(explores, 0, tree.take_or(server.gains, turn.id))
    known = affinity.others(server.models, turn.id)
    return jnp.lexsort((lots(server.names), -gains, -known))


def compute_gains(loss, w, models):
    """The decrease of the loss by each model, over its distance from w, f32[n]."""
    before = loss(w)

    def gain(model):
        distance = jnp.sqrt(tree.square_norm(tree.sub(model, w)))
        return (before - loss(model)) / (distance + 1e-5)

    # One after another: all their batches at once would fill the memory.
    return jax.lax.map(gain, models)


def mix(w, models, gains):
    """The mean of the models, weighted by positive gains; w if there are none."""
    positive = jnp.where(gains > 0, gains, 0)
    mean = aggregation.mean(models, positive)
    return tree.where(jnp.any(gains > 0), mean, w)


def receive(server, uploads, cohort):
    """The server with the models and gains of the clients that reported."""
    rows = aggregation.present_ids(cohort)[:, None]
    return server._replace(
        models=affinity.receive(server.models, uploads.w, cohort),
        gains=server.gains.at[rows, uploads.ids].add(uploads.gains, mode="drop"),
    )
