"""FedALA. Zhang et al., AAAI 2023, https://arxiv.org/abs/2212.01197 (Algorithm 1).

    Server   w
    Client   w_k, its own params; W_k, weights of its top layers; its rounds, up to 2
    Message  w                Upload  w_k
Client k begins at  v = w_k + W_k (w - w_k)  in its top layers and at w below them. It
learns W_k first: w and w_k stay, and each minibatch moves it by
W_k <- clip(W_k - weight_lr grad F_k(v) (w - w_k), 0, 1).  A pass is over `share` of its
rows, drawn anew every round. Once there are many, until the losses of the last 10 have
a standard deviation below `threshold`; in later rounds there is one. Then v is trained,
and is the new w_k; w is FedAvg's. Client k is judged by v with the newest w, before
training, or by w before it ever took part.

W_k begins at 1, and a client's first round is FedAvg's. Running statistics are w's.

Differs from the published code: `share` is a random part of the rows in whole batches,
the loss of a pass is its mean, not that of its last batch, passes are at most
`most_passes`, layers are modules with all their params, and who does not take part
keeps its w_k. The paper's text was not read: its abstract, poster and code were.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import statistics, tree
from pfljax.core.keys import fold
from pfljax.core.optimizers import within_one
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task
from pfljax.registry import AtLeastOne, NotNegative, Share, component, require

LOSSES = 10  # of the last passes, whose spread ends them


class Client(NamedTuple):
    """What a client keeps."""

    w: Params
    weights: Any  # W_k, shaped as the params of its top layers
    stage: Any  # i32[], rounds that it has trained in, up to 2


@component
def fedala(
    task: Task,
    local: Local,
    *,
    layers: AtLeastOne = 1,
    weight_lr: NotNegative = 1.0,
    share: Share = 0.8,
    threshold: NotNegative = 0.1,
    most_passes: AtLeastOne = 100,
) -> Algorithm:
    """Builds FedALA; `weight_lr` = 0 is FedAvg.

    Args:
      task: the model.
      local: how a client trains; its batch size is that of the passes, too.
      layers: modules from the head down whose params are mixed.
      weight_lr: the step of W_k.
      share: of a client's rows, of a pass; one batch at least.
      threshold: the standard deviation of losses that ends the first passes.
      most_passes: after which they end anyway.

    Raises:
      ValueError: the model has fewer modules than `layers`.
    """
    chosen = top(task, layers)
    on_weights = local._replace(learning_rate=weight_lr, optimizer=within_one)
    lengths = jnp.array([0, most_passes, 1])  # by the client's stage

    def begin(turn, w, client, data):
        new, below = tree.split(w, chosen)
        own, _ = tree.split(client.w, chosen)

        def mixture(weights):
            return tree.merge(tree.lerp(own, new, weights), below)

        def loss(weights, batch, key):
            return task.loss(mixture(weights), batch, key)

        part = pass_turn(turn, data, share, local.batch_size)

        def one_pass(weights):
            weights, metrics = fit(loss, weights, data, part, on_weights)
            return weights, metrics["loss"]

        limit = lengths[client.stage]
        weights, passes = learn_weights(one_pass, client.weights, limit, threshold)
        return mixture(weights), weights, passes

    def train(turn, w, client, data):
        v, weights, passes = begin(turn, w, client, data)
        v, metrics = fit(task.loss, v, data, turn, local)
        stage = jnp.minimum(client.stage + 1, 2)
        metrics = metrics | {"passes": passes.astype(jnp.float32)}
        return Client(w=v, weights=weights, stage=stage), v, metrics

    return fedavg(task, local)._replace(
        init_client=lambda params, client_id, key: first_client(params, chosen),
        train=train,
        personal=lambda turn, w, client, data: begin(turn, w, client, data)[0],
        newcomer=lambda turn, w, data: w,
    )


def top(task, layers):
    """True at the parameters of the last `layers` modules: a choice for `split`."""
    modules = task.num_modules
    expected = f"at most {modules}, the modules of the model"
    require("fedala: layers", layers, layers <= modules, expected)
    first = modules - layers
    return statistics.by_kind(
        task.modules,
        parameter=lambda module: module >= first,
        statistic=lambda module: False,
    )


def first_client(params, chosen):
    """A client that has not trained yet, and takes all of the server's model."""
    mixed, _ = tree.split(params, chosen)
    ones = jax.tree.map(jnp.ones_like, mixed)
    return Client(w=params, weights=ones, stage=jnp.int32(0))


def pass_turn(turn, data, share, batch_size):
    """The turn of one pass: every pass of a round sees the same minibatches."""
    batches = jnp.ceil(share * data.size / batch_size).astype(jnp.int32)
    return fold(turn, "weights")._replace(steps=jnp.maximum(batches, 1))


def learn_weights(one_pass, weights, limit, threshold):
    """(weights, passes) after `limit` passes, or once losses hardly change."""

    def goes_on(carry):
        _, losses, count = carry
        still = (count > LOSSES) & (jnp.std(losses) < threshold)
        return (count < limit) & ~still

    def body(carry):
        weights, losses, count = carry
        weights, loss = one_pass(weights)
        return weights, jnp.roll(losses, 1).at[0].set(loss), count + 1

    start = weights, jnp.zeros(LOSSES), jnp.int32(0)
    weights, _, count = jax.lax.while_loop(goes_on, body, start)
    return weights, count
