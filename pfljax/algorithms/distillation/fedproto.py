"""FedProto: clients with different models exchange prototypes of the classes.

Tan et al., AAAI 2022, https://arxiv.org/abs/2105.00243 (Algorithm 1).

    Server   C^j, a prototype of each class j        Client  w_k, its parameters
    Message  C^j, and which of them are known        Upload  C_k^j, and |D_kj|

C_k^j is the mean of the features of the |D_kj| examples of class j of client k. Each
step minimises  F_k(w_k) + lam sum_j ||C_k^j - C^j||,  where C_k^j is that of the
minibatch, and j runs over its classes with a known C^j. After training, C_k^j is that
of all examples, in evaluation mode. The server takes
C^j <- sum_k |D_kj| C_k^j / sum_k |D_kj|  over the clients that have class j; other
classes keep their C^j. Client k predicts argmin_j ||f(x) - C^j||, where f is its own
body.

Differs from the paper: its eq. 6 also divides C^j by the number of clients that have
class j, and would shrink it as this grows; its proofs use the mean. Differs from the
authors' code, which gathers C_k^j while it trains, and does not weight the clients.
"""

from typing import Literal

import jax.numpy as jnp

from pfljax.algorithms import _prototypes as prototypes
from pfljax.algorithms.local import local as alone
from pfljax.core.factories import component
from pfljax.core.losses import pull_features
from pfljax.core.ranges import NotNegative
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Local, Task


@component
def fedproto(
    task: Task,
    local: Local,
    *,
    lam: NotNegative = 1.0,
    predict_by: Literal["prototypes", "head"] = "prototypes",
) -> Algorithm:
    """Builds FedProto; `lam` = 0 trains as local training does.

    Args:
      lam: weight of the distance to prototypes; 0 trains alone.
      predict_by: whether a client predicts by the nearest of the "prototypes" or by its
        own "head".
    """

    def train(turn, known, w, data):
        def pull(z, batch):
            distance, _ = prototypes.distances(z, batch, known)
            return lam * jnp.sum(distance)

        objective = pull_features(task, pull)
        w, metrics = fit_objective(objective, w, data, turn, local)
        upload = prototypes.from_client(task, w, data, local.batch_size)
        return w, upload, metrics

    method = alone(task, local)._replace(
        classes=True,
        init=lambda params, num_clients, key: prototypes.none(task),
        message=lambda turn, known, w: known,
        train=train,
        aggregate=prototypes.renew,
        origin=prototypes.no_origin,
        parts=("body",),
    )
    if predict_by == "head":
        return method
    return method._replace(
        personal=lambda turn, known, w, data: prototypes.Nearest(w, known),
        predict=lambda model, batch: prototypes.nearness(task, model, batch),
    )
