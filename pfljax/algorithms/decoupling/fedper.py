"""FedPer. Arivazhagan et al., 2019, https://arxiv.org/abs/1912.00818 (Algorithms 1, 2).

    Server   b, the body      Client  h_k, this client's own head
    Message  b                Upload  b_k, the body after local training
Body and head are trained jointly, b <- sum_k n_k b_k / sum_k n_k, and client k is
judged by the newest b under its own h_k. An unseen client's h_k is as it was drawn,
unless `finetune` trains h_k (of every client) for that b first. What body and head are,
the model says (`Task.groups`).
"""

import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, tree
from pfljax.core.keys import fold
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import Count, component


@component
def fedper(
    task: Task, local: Local, *, finetune: Count = 0, weighting: str = "rows"
) -> Algorithm:
    """Builds FedPer; without a head it is FedAvg, without a body local training.

    `finetune` steps of the head, with the body fixed, precede evaluation: so an unseen
    client gets a head. `weighting`: what a client counts for at the server, "rows" or
    "uniform".

    Args:
      finetune: steps of the head that precede evaluation; 0 for none.
      weighting: what a client counts for at the server: "rows" or "uniform".
    """
    train_head = head_training(task, local)
    in_body = tree.matches(task.groups, "body")

    def train(turn, body, head, data):
        params, metrics = fit(task.loss, tree.merge(body, head), data, turn, local)
        body, head = tree.split(params, in_body)
        return head, body, metrics

    def personal(turn, body, head, data):
        if finetune:
            # A stream apart: training has the same steps, judged or not.
            turn = fold(turn, "finetune")._replace(steps=jnp.int32(finetune))
            head = train_head(turn, body, head, data)
        return tree.merge(body, head)

    return fedavg(task, local)._replace(
        init=lambda params, num_clients, key: tree.split(params, in_body)[0],
        init_client=lambda params, client_id, key: tree.split(params, in_body)[1],
        message=lambda turn, body, head: body,
        train=train,
        aggregate=aggregation.averaging(weighting),
        personal=personal,
        # A body alone judges nobody.
        server_model=None,
        adaptation_steps=finetune,
        # A run without one of them would be another method's, under this name.
        parts=("body", "head"),
    )


def head_training(task, local):
    """A function (turn, body, head, data) -> the head, trained under that body."""

    def train(turn, body, head, data):
        def loss(head, batch, key):
            return task.loss(tree.merge(body, head), batch, key)

        # Its own key: the body's steps that follow draw other minibatches.
        return fit(loss, head, data, fold(turn, "head"), local)[0]

    return train
