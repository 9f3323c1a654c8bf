"""FedProx as SuPerFed's code has it, KDD 2022, https://arxiv.org/abs/2109.07628.

    Server   w                Client  nothing
    Message  w                Upload  w_k, the params after local training
Client k minimises  F_k(v) + mu sum_l ||v_l - w_l||  over the tensors l. The server
keeps its biases (`_code`).
"""

from _code import keep_biases, pulled

from pfljax.algorithms.global_model.fedprox import fedprox
from pfljax.core.factories import component
from pfljax.core.ranges import NotNegative
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task


@component
def fedprox_code(task: Task, local: Local, *, mu: NotNegative = 0.01) -> Algorithm:
    """Builds it; without biases `mu` = 0 is FedAvg."""

    def train(turn, w, client, data):
        w, metrics = fit(task.loss, w, data, turn, local, penalty=pulled(w, mu))
        return client, w, metrics

    return keep_biases(fedprox(task, local)._replace(train=train))
