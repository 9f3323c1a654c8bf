"""HeurFedAMP. Huang et al., AAAI 2021, https://arxiv.org/abs/2007.03797.

    Server   w_k of every client k, as last sent, and who has sent
    Client   w_k, this client's own params
    Message  u_k               Upload  w_k
FedAMP whose weights are of angles, not of distances, which mean little between deep
networks:  u_k = sum_j xi_kj w_j,  where xi_kk is chosen, and for j != k
xi_kj = (1 - xi_kk) exp(sigma cos(w_k, w_j)) / sum_{h != k} exp(sigma cos(w_k, w_h)).
From u_k, client k goes down  F_k(v) + pull / 2 ||v - u_k||^2  to its new w_k, and is
judged by it.

Differs from the paper in what FedAMP here does.
"""

import jax
import jax.numpy as jnp

from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms.multi_task.fedamp import Start, attending
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import NotNegative, Share, component


@component
def heurfedamp(
    task: Task,
    local: Local,
    *,
    sigma: NotNegative = 25.0,
    own_weight: Share | None = None,
    pull: NotNegative = 1e-4,
    start: Start = "cloud",
) -> Algorithm:
    """Builds HeurFedAMP; `own_weight` = 1 and `pull` = 0 are local training.

    `own_weight` is xi_kk, and None one part of as many as have sent. With `sigma` = 0
    the others count alike: that, None, `pull` = 0 and all clients in every round are
    FedAvg with uniform weights. `start` is where local training begins, at u_k
    ("cloud") or at w_k ("own").

    Args:
      sigma: sharpness of the cosines; 0 counts all others alike.
      own_weight: weight of a client's own model; None, one part of as many as sent.
      pull: weight of the distance to the cloud model.
      start: where local training begins: at the "cloud" or the client's "own" model.
    """

    def attention(models, own, others, centre):
        share = 1 / (1 + jnp.sum(others)) if own_weight is None else own_weight
        # Without others the softmax is of all, and none of it is left.
        scores = jnp.where(others > 0, sigma * affinity.cosines(models, own), -jnp.inf)
        scores = jnp.where(jnp.any(others > 0), scores, 0)
        return (1 - share) * others * jax.nn.softmax(scores)

    return attending(task, local, attention, pull, start)
