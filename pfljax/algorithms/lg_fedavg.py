"""LG-FedAvg. Liang et al., 2020, https://arxiv.org/abs/2001.01523 (Algorithm 1).

    Server   h, the head      Client  b_k, this client's own body
    Message  h                Upload  h_k, the head after local training
FedPer the other way round: body and head are trained jointly, h <- sum_k n_k h_k /
sum_k n_k, and client k is judged by the newest h on its own b_k.
"""

import jax

from pfljax.algorithms.fedper import fedper
from pfljax.types import Algorithm, Local, Task

OTHER = {"body": "head", "head": "body"}


def lg_fedavg(task: Task, local: Local, *, weighting: str = "rows") -> Algorithm:
    """Builds LG-FedAvg; without a head it is local training, without a body FedAvg.

    The authors' code averages with weighting="uniform", and starts from a model that
    FedAvg trained; here all starts are cold. An unseen client has a body of its own to
    train: nobody ever sends one.
    """
    turned = task._replace(groups=jax.tree.map(OTHER.__getitem__, task.groups))
    return fedper(turned, local, weighting=weighting)
