"""FedExP: the server extrapolates along the mean change when clients disagree.

Jhunjhunwala, Wang, Joshi, ICLR 2023, https://arxiv.org/abs/2301.09604 (Algorithm 1).

    Server   w, and the w before the last round
    Client   nothing
    Message  w                Upload  d_k, the change of w in local training

With the mean d of M uploads, the server takes

    w <- w + s d,   s = max(1, sum_k ||d_k||^2 / (2 M (||d||^2 + eps)))

Equal changes have s = 1, and orthogonal ones of equal length s = M / 2. Clients count
alike. The last w oscillates, so every client is evaluated with the mean of the last two
w. Running statistics change by their mean.

The authors' code weights both means by examples, and multiplies eps by M.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.factories import component
from pfljax.core.ranges import Count, NotNegative
from pfljax.core.server_model import wrap_server
from pfljax.core.types import Algorithm, Local, Params, Task, zero_origin


class Server(NamedTuple):
    """The last two models."""

    w: Params
    before: Params


@component
def fedexp(
    task: Task, local: Local, *, eps: NotNegative = 1e-3, finetune: Count = 0
) -> Algorithm:
    """Builds FedExP; with a large `eps`, its w is that of uniform FedAvg.

    Args:
      eps: added to the squared length of the mean change.
      finetune: local steps before the evaluation; 0 for none.
    """
    shared = fedavg(task, local, finetune=finetune)

    def train(turn, w, client, data):
        client, w_k, metrics = shared.train(turn, w, client, data)
        return client, tree.sub(w_k, w), metrics

    evaluated = wrap_server(
        shared, lambda server: tree.lerp(server.w, server.before, 0.5)
    )
    return evaluated._replace(
        init=lambda params, num_clients, key: Server(w=params, before=params),
        message=lambda turn, server, client: server.w,
        train=train,
        aggregate=partial(aggregate, eps),
        origin=zero_origin,
        uploads_by_client=True,
    )


def aggregate(eps, server, uploads, cohort):
    """w after a step along the mean change."""
    squares = jax.vmap(tree.square_norm)(uploads)
    weight = aggregation.uniform(cohort)
    mean, square = aggregation.mean((uploads, squares), weight)
    length = tree.square_norm(mean) + eps
    s = square / (2 * jnp.maximum(length, jnp.finfo(jnp.float32).tiny))
    step = statistics.scale(mean, jnp.maximum(1, s))
    return Server(w=tree.add(server.w, step), before=server.w)
