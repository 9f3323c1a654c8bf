"""FedPer. Arivazhagan et al., 2019, https://arxiv.org/abs/1912.00818 (Algorithms 1, 2).

    Server   b, the body      Client  h_k, this client's own head
    Message  b                Upload  b_k, the body after local training
Body and head are trained jointly, b <- sum_k n_k b_k / sum_k n_k, and client k is
judged by the newest b under its own h_k. What body and head are, the model says
(`Task.groups`).
"""

from pfljax import reduce, tree
from pfljax.algorithms.fedavg import fedavg
from pfljax.local import fit
from pfljax.types import Algorithm, Local, Task


def fedper(task: Task, local: Local, *, weighting: str = "rows") -> Algorithm:
    """Builds FedPer; without a head it is FedAvg, without a body local training.

    `weighting`: what a client counts for at the server, "rows" or "uniform".
    """
    weights = reduce.weighting(weighting)
    in_body = tree.labelled(task.groups, "body")

    def train(turn, body, head, data):
        params, metrics = fit(task.loss, tree.merge(body, head), data, turn, local)
        body, head = tree.split(params, in_body)
        return head, body, metrics

    return fedavg(task, local)._replace(
        init=lambda params, num_clients, key: tree.split(params, in_body)[0],
        init_client=lambda params, client_id, key: tree.split(params, in_body)[1],
        message=lambda body, head: body,
        train=train,
        aggregate=lambda body, uploads, cohort: reduce.mean(uploads, weights(cohort)),
        personal=lambda turn, body, head, data: tree.merge(body, head),
        server_model=None,
    )
