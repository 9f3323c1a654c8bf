"""LG-FedAvg. Liang et al., 2020, https://arxiv.org/abs/2001.01523 (Algorithm 1).

    Server   h, the head      Client  b_k, this client's own body
    Message  h                Upload  h_k, the head after local training
FedPer the other way round: body and head are trained jointly, h <- sum_k n_k h_k /
sum_k n_k, and client k is judged by the newest h on its own b_k. With `mean_body` each
upload also has the change of b_k, and who has not taken part yet is judged by h on the
mean of all bodies that have: the paper's averaged local models for unseen clients.
`finetune` trains the body under the newest h first, as a new client would.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.decoupling.fedper import fedper
from pfljax.core import tree
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import Count

OTHER = {"body": "head", "head": "body"}


class Bodies(NamedTuple):
    """The server's state with `mean_body`."""

    head: Any
    total: Any  # sum of the bodies of the clients that took part
    count: Any  # f32[], how many they are


class Kept(NamedTuple):
    """The client's state with `mean_body`."""

    body: Any
    trained: Any  # bool[], whether its body is in the server's sum


def lg_fedavg(
    task: Task,
    local: Local,
    *,
    finetune: Count = 0,
    weighting: str = "rows",
    mean_body: bool = False,
) -> Algorithm:
    """Builds LG-FedAvg; without a head it is local training, without a body FedAvg.

    The authors' code averages with weighting="uniform", and starts from a model that
    FedAvg trained; here all starts are cold. Without `mean_body` nobody ever sends a
    body, and an unseen client's is as it was drawn. `finetune` steps of the body, with
    the head fixed, precede evaluation.
    """
    turned = task._replace(groups=jax.tree.map(OTHER.__getitem__, task.groups))
    method = fedper(turned, local, finetune=finetune, weighting=weighting)
    return with_mean_body(method) if mean_body else method


def with_mean_body(method: Algorithm) -> Algorithm:
    """The method, whose server also knows the mean of the clients' bodies."""
    judged_by = method.personal
    assert judged_by is not None

    def init(params, num_clients, key):
        nobody = tree.zeros(method.init_client(params, jnp.int32(0), key))
        return Bodies(method.init(params, num_clients, key), nobody, jnp.float32(0))

    def train(turn, head, kept, data):
        body, upload, metrics = method.train(turn, head, kept.body, data)
        change = tree.axpy(-kept.trained.astype(jnp.float32), kept.body, body)
        return Kept(body, jnp.bool_(True)), (upload, change, ~kept.trained), metrics

    def aggregate(server, uploads, cohort):
        heads, changes, new = uploads
        summed = jax.tree.map(lambda leaf: jnp.tensordot(cohort.mask, leaf, 1), changes)
        return Bodies(
            method.aggregate(server.head, heads, cohort),
            tree.add(server.total, summed),
            server.count + jnp.sum(new * cohort.mask),
        )

    def personal(turn, server, kept, data):
        mean = tree.scale(server.total, 1 / jnp.maximum(server.count, 1))
        first = kept.trained | (server.count == 0)
        body = tree.where(first, kept.body, mean)
        return judged_by(turn, server.head, body, data)

    def start(params, client_id, key):
        return Kept(method.init_client(params, client_id, key), jnp.bool_(False))

    return method._replace(
        init=init,
        init_client=start,
        message=lambda turn, server, kept: server.head,
        train=train,
        aggregate=aggregate,
        personal=personal,
    )
