"""FedPer: clients share the body of the network and keep their own heads.

Arivazhagan et al., 2019, https://arxiv.org/abs/1912.00818 (Algorithms 1, 2).

    Server   b, the body      Client  h_k, the head of this client
    Message  b                Upload  b_k, the body after local training

Body and head are trained jointly, and b <- sum_k n_k b_k / sum_k n_k. Client k is
evaluated with the newest b and its own h_k. The head of a client that never took part
is as it was drawn, unless `finetune` first trains h_k (of every client) for that b. The
model defines what the body and the head are (`Task.groups`).
"""

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.keys import fold
from pfljax.core.ranges import Count
from pfljax.core.training import fit, fit_part
from pfljax.core.types import Algorithm, Local, Task


@component
def fedper(
    task: Task, local: Local, *, finetune: Count = 0, weighting: str = "examples"
) -> Algorithm:
    """Builds FedPer; without a head it is FedAvg, without a body local training.

    Before the evaluation, `finetune` steps train the head with the body fixed, which
    gives clients that never took part a head as well.

    Args:
      finetune: steps of the head before the evaluation; 0 for none.
      weighting: the weight of a client at the server: "examples" or "uniform".
    """
    train_head = head_training(task, local)
    in_body = tree.matches(task.groups, "body")

    def train(turn, body, head, data):
        params, metrics = fit(task.loss, tree.merge(body, head), data, turn, local)
        body, head = tree.split(params, in_body)
        return head, body, metrics

    def personal(turn, body, head, data):
        if finetune:
            # A separate stream: evaluations must not change the steps of training.
            head = train_head(fold(turn, "finetune", finetune), body, head, data)
        return tree.merge(body, head)

    return fedavg(task, local)._replace(
        init=lambda params, num_clients, key: tree.split(params, in_body)[0],
        init_client=lambda params, client_id, key: tree.split(params, in_body)[1],
        message=lambda turn, body, head: body,
        train=train,
        aggregate=aggregation.averaging(weighting),
        personal=personal,
        # A body alone is no model.
        server_model=None,
        adaptation_steps=finetune,
        # A run without one of them would be another method under this name.
        parts=("body", "head"),
    )


def head_training(task, local):
    """A function (turn, body, head, data) -> the head, trained with that body."""
    in_head = tree.matches(task.groups, "head")

    def train(turn, body, head, data):
        params = tree.merge(body, head)
        # A key of its own: the steps of the body draw other minibatches.
        turn = fold(turn, "head")
        params, _ = fit_part(task.loss, params, in_head, data, turn, local)
        return tree.split(params, in_head)[0]

    return train
