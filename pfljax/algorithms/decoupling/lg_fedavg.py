"""LG-FedAvg: clients keep their own bodies and share the head of the network.

Liang et al., 2020, https://arxiv.org/abs/2001.01523 (Algorithm 1).

    Server   h, the head      Client  b_k, the body of this client
    Message  h                Upload  h_k, the head after local training

This is FedPer with the two parts exchanged: body and head are trained jointly,
h <- sum_k n_k h_k / sum_k n_k, and client k is evaluated with the newest h on its own
b_k. With `mean_body` each upload also has the change of b_k, and a client that has not
taken part yet is evaluated with h on the mean of all bodies that have: the paper's
averaged local models for unseen clients. `finetune` first trains the body for the
newest h, as a new client would.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from pfljax.algorithms.decoupling.partial import keep_leaves
from pfljax.core import aggregation, leaves, tree
from pfljax.core.factories import component
from pfljax.core.ranges import Count
from pfljax.core.types import Algorithm, Local, Task


class Bodies(NamedTuple):
    """The server's state with `mean_body`."""

    head: Any
    total: Any  # sum of the bodies of the clients that took part
    count: Any  # f32[], their number


class Kept(NamedTuple):
    """The client's state with `mean_body`."""

    body: Any
    trained: Any  # bool[], whether its body is in the server's sum


class Upload(NamedTuple):
    """The upload with `mean_body`."""

    head: Any
    change: Any  # of the body since it was last added to the server's sum
    is_new: Any  # bool[], whether it was not in the sum yet


@component
def lg_fedavg(
    task: Task,
    local: Local,
    *,
    finetune: Count = 0,
    weighting: str = "examples",
    mean_body: bool = False,
) -> Algorithm:
    """Builds LG-FedAvg; without a head it is local training, without a body FedAvg.

    The authors' code averages with weighting="uniform" and starts from a model trained
    by FedAvg; here all starts are cold. Without `mean_body` nobody ever sends a body,
    and that of a client that never took part is as it was drawn. Before the evaluation,
    `finetune` steps train the body with the head fixed.

    Args:
      finetune: steps of the body before the evaluation; 0 for none.
      weighting: the weight of a client at the server: "examples" or "uniform".
      mean_body: also upload bodies, and evaluate newcomers with their mean.
    """
    body = leaves.of_kind(task, "body")
    method = keep_leaves(task, local, body, finetune, weighting)
    method = method._replace(parts=("body", "head"))
    return with_mean_body(method) if mean_body else method


def with_mean_body(method: Algorithm) -> Algorithm:
    """The method, whose server also has the mean of the clients' bodies."""
    merge = method.personal
    assert merge is not None

    def init(params, num_clients, key):
        body = method.init_client(params, jnp.int32(0), key)
        head = method.init(params, num_clients, key)
        return Bodies(head=head, total=tree.zeros(body), count=jnp.float32(0))

    def init_client(params, client_id, key):
        body = method.init_client(params, client_id, key)
        return Kept(body=body, trained=jnp.bool_(False))

    def train(turn, head, kept, data):
        body, head, metrics = method.train(turn, head, kept.body, data)
        # First the whole body, then its changes: the sum has each body once.
        in_sum = kept.trained.astype(jnp.float32)
        change = tree.axpy(-in_sum, kept.body, body)
        upload = Upload(head=head, change=change, is_new=~kept.trained)
        return Kept(body=body, trained=jnp.bool_(True)), upload, metrics

    def origin(head, kept, upload):
        # A newcomer sends its whole body, which started from the one it had before.
        change = tree.where(kept.trained, tree.zeros(kept.body), kept.body)
        return Upload(head=head, change=change, is_new=None)

    def aggregate(server, uploads, cohort):
        # By the mask alone: a client drawn twice has one body.
        change = aggregation.weighted_sum(uploads.change, cohort.mask)
        return Bodies(
            head=method.aggregate(server.head, uploads.head, cohort),
            total=tree.add(server.total, change),
            count=server.count + jnp.sum(uploads.is_new * cohort.mask),
        )

    def personal(turn, server, kept, data):
        return merge(turn, server.head, body_for_evaluation(server, kept), data)

    return method._replace(
        init=init,
        init_client=init_client,
        message=lambda turn, server, kept: server.head,
        train=train,
        aggregate=aggregate,
        personal=personal,
        origin=origin,
    )


def body_for_evaluation(server, kept):
    """The client's body, or the mean of all bodies if it has not taken part yet."""
    mean = tree.scale(server.total, 1 / jnp.maximum(server.count, 1))
    # Before anybody has trained there is no mean.
    return tree.where(kept.trained | (server.count == 0), kept.body, mean)
