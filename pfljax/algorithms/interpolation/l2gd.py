"""L2GD: coin flips decide between local training and steps towards the mean model.

Hanzely, Richtarik, 2020, https://arxiv.org/abs/2002.05516 (Algorithm 1).

    Server   z, the mean of all x_k, and the coins of this round and the last
    Client   x_k, the parameters of this client
    Message  the server       Upload  the change of x_k

It minimises  mean_k f_k(x_k) + lam / 2 mean_k ||x_k - z||^2.  A coin, the same for all
clients, is 1 with probability p in each round. If it is 0, clients train. If it is 1,
they take x_k <- x_k - pull (x_k - z), where pull = rate lam (1 - p) / p. Client k is
evaluated with x_k, or with z before it first takes part.

`local` is the local training, in the paper one step of gradient descent a round
(`--steps 1`) at the rate alpha / (N (1 - p)). With K steps a round, lam acts as
lam / K. An absent client keeps x_k, and z is the mean over all clients.

Shapes are static, so the bytes of message and upload are the same in every round. What
has to be sent is in the metrics: coin 1 needs z, which is new if the last coin was 0.
"sent_bytes" and "received_bytes" are one model in such rounds and 0 in others, a mean
of p (1 - p) models. This counts the paper's rounds, in which all clients take part.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.optimizers import learning_rate
from pfljax.core.ranges import NotNegative, ProperShare
from pfljax.core.requirements import require
from pfljax.core.training import fit, full_loss
from pfljax.core.types import Algorithm, Array, Local, Params, Task, zero_origin


class Server(NamedTuple):
    """The mean model, and whether clients step towards it."""

    z: Params
    coin: Array  # bool[], of this round
    last_coin: Array  # bool[]


@component
def l2gd(
    task: Task, local: Local, *, lam: NotNegative = 1.0, p: ProperShare = 0.2
) -> Algorithm:
    """Builds L2GD; `lam` = 0 is local training in a share 1 - p of the rounds.

    With pull = 1 it is FedAvg with uniform weights and a geometric number of local
    rounds.

    Args:
      lam: penalty of the distance to the mean; 0 is local training.
      p: probability that a round is one of averaging.

    Raises:
      ValueError: the pull is above 1 in the first round: x_k would go beyond z.
    """

    def pull(round_):
        return learning_rate(local, round_) * lam * (1 - p) / p

    first = pull(0)
    # In a sweep the rate or lam has no value yet.
    fits = isinstance(first, jax.Array) or first <= 1
    require("l2gd: rate lam (1 - p) / p", first, fits, "at most 1")

    def init(params, num_clients, key):
        # All start at z, as after a coin 1.
        return Server(z=params, coin=flip(key, p), last_coin=jnp.bool_(True))

    def train(turn, server, x, data):
        # Under vmap both cases are computed: no steps or no examples cost nothing.
        steps = jnp.where(server.coin, 0, turn.steps)
        trained, metrics = fit(task.loss, x, data, turn._replace(steps=steps), local)
        pulled = tree.lerp(x, server.z, pull(turn.round))
        after = tree.where(server.coin & (turn.steps > 0), pulled, trained)
        # With coin 1 no step has measured the loss.
        measured = data._replace(size=jnp.where(server.coin, data.size, 0))
        loss = full_loss(task.loss, x, measured, local.batch_size)
        new = server.coin & ~server.last_coin
        size = new * jnp.float32(tree.nbytes(x))
        loss = metrics["loss"] + loss
        metrics = {"loss": loss, "sent_bytes": size, "received_bytes": size}
        return after, tree.sub(after, x), metrics

    return fedavg(task, local)._replace(
        init=init,
        init_client=lambda params, client_id, key: params,
        train=train,
        work=lambda steps, size, is_first: (1 - p) * steps,
        aggregate=partial(aggregate, p),
        server_model=lambda server: server.z,
        personal=lambda turn, server, x, data: x,
        newcomer=lambda turn, server, data: server.z,
        endpoints=lambda server, x: (server.z, x),
        origin=zero_origin,
    )


def aggregate(p, server, uploads, cohort):
    """The mean of the models of all clients, and a new coin."""
    # The model of an absent client has not changed.
    share = cohort.mask.sum() / cohort.num_clients
    change = aggregation.mean(uploads, cohort.mask)
    z = tree.axpy(share, change, server.z)
    return Server(z=z, coin=flip(cohort.key, p), last_coin=server.coin)


def flip(key, p):
    """The coin, bool[]: 1 with probability p."""
    return jax.random.bernoulli(derive(key, "coin"), p)
