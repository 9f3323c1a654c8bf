"""FedALA: clients learn how to merge the shared model into their own before training.

Zhang et al., AAAI 2023, https://arxiv.org/abs/2212.01197 (Algorithm 1).

    Server   w
    Client   w_k, its parameters; W_k, weights of its top layers; its rounds, up to 2
    Message  w                Upload  w_k

Client k starts from  v = w_k + W_k (w - w_k)  in its top layers and from w below them.
It learns W_k first: w and w_k stay, and each minibatch moves it by
W_k <- clip(W_k - weight_lr grad F_k(v) (w - w_k), 0, 1).
A pass covers `share` of its examples, drawn anew in every round. In the client's second
round there are passes until the losses of the last 10 have a standard deviation below
`threshold`; in later rounds there is one. Then v is trained and becomes the new w_k. w
is that of FedAvg. Client k is evaluated with v for the newest w, before training, or
with w before it first takes part.

W_k starts at 1, and the first round of a client is that of FedAvg. Running statistics
are those of w.

Differs from the published code: `share` is a random part of the examples in whole
batches; the loss of a pass is its mean, not that of its last batch; there are at most
`most_passes` passes; layers are modules with all their parameters; and an absent client
keeps its w_k. Written from the abstract, the poster and the code, without the paper's
full text.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import statistics, tree
from pfljax.core.factories import component
from pfljax.core.keys import fold
from pfljax.core.optimizers import within_one
from pfljax.core.ranges import AtLeastOne, NotNegative, Share
from pfljax.core.requirements import require
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task

LOSSES = 10  # of the last passes, whose spread ends them


class Client(NamedTuple):
    """The state of a client."""

    w: Params
    weights: Any  # W_k, shaped as the parameters of the top layers
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
      local: how a client trains; its batch size is also that of the passes.
      layers: number of modules, from the head down, whose parameters are merged.
      weight_lr: step size of W_k.
      share: share of a client's examples in a pass; at least one batch.
      threshold: standard deviation of the losses that ends the first passes.
      most_passes: largest number of first passes.

    Raises:
      ValueError: the model has fewer modules than `layers`.
    """
    chosen = top(task, layers)
    on_weights = local._replace(learning_rate=weight_lr, optimizer=within_one)
    lengths = jnp.array([0, most_passes, 1])  # by the client's stage

    def begin(turn, w, client, data):
        new, below = tree.split(w, chosen)
        old, _ = tree.split(client.w, chosen)

        def mixture(weights):
            return tree.merge(tree.lerp(old, new, weights), below)

        def loss(weights, batch, key):
            return task.loss(mixture(weights), batch, key)

        part = pass_turn(turn, data, share, local.batch_size)

        def take_pass(weights):
            weights, metrics = fit(loss, weights, data, part, on_weights)
            return weights, metrics["loss"]

        limit = lengths[client.stage]
        weights, passes = learn_weights(take_pass, client.weights, limit, threshold)
        return mixture(weights), weights, passes

    def train(turn, w, client, data):
        v, weights, passes = begin(turn, w, client, data)
        v, metrics = fit(task.loss, v, data, turn, local)
        stage = jnp.minimum(client.stage + 1, 2)
        metrics = metrics | {"passes": passes.astype(jnp.float32)}
        return Client(w=v, weights=weights, stage=stage), v, metrics

    def work(steps, size, is_first):
        # One pass from the third round on. How many the second takes depends on losses.
        passes = jnp.where(is_first, 0, pass_length(size, share, local.batch_size))
        return steps + passes

    return fedavg(task, local)._replace(
        init_client=lambda params, client_id, key: first_client(params, chosen),
        train=train,
        work=work,
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
    return Client(w=params, weights=tree.full(mixed, 1), stage=jnp.int32(0))


def pass_turn(turn, data, share, batch_size):
    """The turn of a pass: all passes of a round see the same minibatches."""
    return fold(turn, "weights", pass_length(data.size, share, batch_size))


def pass_length(size, share, batch_size):
    """Counts the minibatches of a pass over a share of `size` examples; at least 1."""
    batches = jnp.ceil(share * size / batch_size).astype(jnp.int32)
    return jnp.maximum(batches, 1)


def learn_weights(take_pass, weights, limit, threshold):
    """(weights, passes) after `limit` passes, or once the losses hardly change."""

    def goes_on(carry):
        _, losses, count = carry
        still = (count > LOSSES) & (jnp.std(losses) < threshold)
        return (count < limit) & ~still

    def body(carry):
        weights, losses, count = carry
        weights, loss = take_pass(weights)
        return weights, jnp.roll(losses, 1).at[0].set(loss), count + 1

    start = weights, jnp.zeros(LOSSES), jnp.int32(0)
    weights, _, count = jax.lax.while_loop(goes_on, body, start)
    return weights, count
