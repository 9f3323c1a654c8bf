"""L2GD. Hanzely, Richtarik, 2020, https://arxiv.org/abs/2002.05516 (Algorithm 1).

    Server   z, the mean of all x_k, and the coins of this round and the last
    Client   x_k, this client's own params
    Message  the server       Upload  the change of x_k
It minimises  mean_k f_k(x_k) + lam / 2 mean_k ||x_k - z||^2.  A coin, the same for all
clients, is 1 with probability p in each round. Of coin 0 a client trains. Of coin 1 it
takes  x_k <- x_k - pull (x_k - z),  pull = rate lam (1 - p) / p.  Client k is judged by
x_k, or by z before it ever took part.

`local` trains, in the paper by one step of gradient descent a round (`--steps 1`), of
rate alpha / (N (1 - p)); of K steps a round, lam acts as lam / K. Who is absent keeps
x_k, and z is the mean of all, theirs too.

Shapes are static, so the bytes of message and upload are those of every round. What has
to be sent is in the metrics: coin 1 needs z, which is new if the last coin was 0.
"sent_bytes" and "received_bytes" are a model in such rounds and 0 in others, p (1 - p)
of a model in the mean. The count is of the paper's rounds, where all clients take part.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, tree
from pfljax.core.keys import derive
from pfljax.core.optimizers import learning_rate
from pfljax.core.training import fit, mean_over_rows
from pfljax.core.types import Algorithm, Array, Local, Params, Task
from pfljax.registry import NotNegative, ProperShare, component, require


class Server(NamedTuple):
    """The mean model, and whether clients go towards it."""

    z: Params
    coin: Array  # bool[], of this round
    last_coin: Array  # bool[]


@component
def l2gd(
    task: Task, local: Local, *, lam: NotNegative = 1.0, p: ProperShare = 0.2
) -> Algorithm:
    """Builds L2GD; `lam` = 0 is local training, in a share 1 - p of the rounds.

    Of pull = 1 it is FedAvg with uniform weights, whose number of local rounds is
    geometric.

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
        # Under vmap both coins are computed: of no steps and of no rows for nothing.
        steps = jnp.where(server.coin, 0, turn.steps)
        trained, metrics = fit(task.loss, x, data, turn._replace(steps=steps), local)
        pulled = tree.lerp(x, server.z, pull(turn.round))
        moves = server.coin & (turn.steps > 0)
        after = tree.where(moves, pulled, trained)
        # Of coin 1 no step has told the loss.
        loss = metrics["loss"] + mean_loss(task, x, data, local, server.coin)
        new = server.coin & ~server.last_coin
        size = new * jnp.float32(tree.nbytes(x))
        metrics = {"loss": loss, "sent_bytes": size, "received_bytes": size}
        return after, tree.sub(after, x), metrics

    def aggregate(server, uploads, cohort):
        # Of all clients, as c in SCAFFOLD: who is absent has not changed.
        share = cohort.mask.sum() / cohort.num_clients
        change = aggregation.mean(uploads, cohort.mask)
        return Server(
            z=tree.axpy(share, change, server.z),
            coin=flip(cohort.key, p),
            last_coin=server.coin,
        )

    return fedavg(task, local)._replace(
        init=init,
        init_client=lambda params, client_id, key: params,
        message=lambda turn, server, x: server,
        train=train,
        aggregate=aggregate,
        server_model=lambda server: server.z,
        personal=lambda turn, server, x, data: x,
        newcomer=lambda turn, server, data: server.z,
        endpoints=lambda server, x: (server.z, x),
        # What is sent is a change already.
        origin=lambda server, x, upload: tree.zeros(upload),
    )


def mean_loss(task, x, data, local, coin):
    """The mean loss of the client's rows for coin 1; else 0, of no row."""
    size = jnp.where(coin, data.size, 0)

    def value(batch):
        return task.loss(x, batch, None)

    return mean_over_rows(value, data._replace(size=size), local.batch_size)


def flip(key, p):
    """The coin, bool[]: 1 with probability p."""
    return jax.random.bernoulli(derive(key, "coin"), p)
