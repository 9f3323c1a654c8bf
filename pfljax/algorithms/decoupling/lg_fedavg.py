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
from pfljax.core import aggregation, tree
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import Count, component

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


class Upload(NamedTuple):
    """What a client sends with `mean_body`."""

    head: Any
    change: Any  # of its body since the server last had it in the sum
    is_new: Any  # bool[], whether it was not in the sum yet


@component
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

    Args:
      finetune: steps of the body that precede evaluation; 0 for none.
      weighting: what a client counts for at the server: "rows" or "uniform".
      mean_body: uploads also have the body, and newcomers are judged on the mean.
    """
    # FedPer of a task whose body is called head, and whose head body.
    groups = jax.tree.map(OTHER.__getitem__, task.groups)
    exchanged = task._replace(groups=groups)
    method = fedper(exchanged, local, finetune=finetune, weighting=weighting)
    method = with_any_head(method, task)
    if mean_body:
        return with_mean_body(method)
    return method


def with_any_head(method: Algorithm, task: Task) -> Algorithm:
    """The method under a server whose head was split off a model of another body."""
    in_head = tree.matches(task.groups, "head")
    own, _ = tree.split(task.groups, in_head)
    judged_by = method.personal
    assert judged_by is not None

    def train(turn, head, body, data):
        own_head = tree.with_structure(head, own)
        body, trained, metrics = method.train(turn, own_head, body, data)
        return body, tree.with_structure(trained, head), metrics

    def personal(turn, head, body, data):
        return judged_by(turn, tree.with_structure(head, own), body, data)

    return method._replace(train=train, personal=personal)


def with_mean_body(method: Algorithm) -> Algorithm:
    """The method, whose server also knows the mean of the clients' bodies."""
    judged_by = method.personal
    assert judged_by is not None

    def init(params, num_clients, key):
        body = method.init_client(params, jnp.int32(0), key)
        return Bodies(
            head=method.init(params, num_clients, key),
            total=tree.zeros(body),
            count=jnp.float32(0),
        )

    def init_client(params, client_id, key):
        body = method.init_client(params, client_id, key)
        return Kept(body=body, trained=jnp.bool_(False))

    def train(turn, head, kept, data):
        body, head, metrics = method.train(turn, head, kept.body, data)
        # The whole body at first, then its change: the sum has each body once.
        in_sum = kept.trained.astype(jnp.float32)
        change = tree.axpy(-in_sum, kept.body, body)
        upload = Upload(head=head, change=change, is_new=~kept.trained)
        return Kept(body=body, trained=jnp.bool_(True)), upload, metrics

    def origin(head, kept, upload):
        # A newcomer sends its whole body, which was another before it trained.
        nothing = tree.zeros(kept.body)
        change = tree.where(kept.trained, nothing, kept.body)
        return Upload(head=head, change=change, is_new=None)

    def aggregate(server, uploads, cohort):
        total, count = add_bodies(server, uploads, cohort)
        head = method.aggregate(server.head, uploads.head, cohort)
        return Bodies(head=head, total=total, count=count)

    def personal(turn, server, kept, data):
        body = body_for_evaluation(server, kept)
        return judged_by(turn, server.head, body, data)

    return method._replace(
        init=init,
        init_client=init_client,
        message=lambda turn, server, kept: server.head,
        train=train,
        aggregate=aggregate,
        personal=personal,
        origin=origin,
    )


def add_bodies(server, uploads, cohort):
    """(sum of the bodies, how many they are) after a round's changes."""
    # By the mask alone: a client drawn twice has one body.
    change = aggregation.weighted_sum(uploads.change, cohort.mask)
    newcomers = jnp.sum(uploads.is_new * cohort.mask)
    return tree.add(server.total, change), server.count + newcomers


def body_for_evaluation(server, kept):
    """The client's body; the mean of all bodies if it has not taken part yet."""
    count = jnp.maximum(server.count, 1)
    mean = tree.scale(server.total, 1 / count)
    # Before anybody trained there is no mean.
    nobody_trained = server.count == 0
    own_body = kept.trained | nobody_trained
    return tree.where(own_body, kept.body, mean)
