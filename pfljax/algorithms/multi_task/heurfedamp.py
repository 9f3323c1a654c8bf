"""HeurFedAMP: FedAMP with weights by the cosines between models.

Huang et al., AAAI 2021, https://arxiv.org/abs/2007.03797.

    Server   w_k of every client k, as last sent, and which clients have sent
    Client   w_k, the parameters of this client
    Message  u_k               Upload  w_k

Angles replace distances, which mean little between deep networks:
u_k = sum_j xi_kj w_j,  where xi_kk is an option, and for j != k
xi_kj = (1 - xi_kk) exp(sigma cos(w_k, w_j)) / sum_{h != k} exp(sigma cos(w_k, w_h)).
From u_k, client k minimises  F_k(v) + pull / 2 ||v - u_k||^2.  The result is its new
w_k, with which it is evaluated.

Differs from the paper in the same points as FedAMP.
"""

import jax
import jax.numpy as jnp

from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms.multi_task.fedamp import Start, attending
from pfljax.core.factories import component
from pfljax.core.ranges import NotNegative, Share
from pfljax.core.types import Algorithm, Local, Task


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

    With `sigma` = 0, `own_weight` = None, `pull` = 0 and all clients in every round it
    is FedAvg with uniform weights.

    Args:
      sigma: sharpness of the weights; 0 weights all others equally.
      own_weight: xi_kk, the weight of a client's own model; None for 1 / n, if n
        clients have sent a model.
      pull: weight of the distance to u_k.
      start: where local training starts, at u_k ("cloud") or at w_k ("own").
    """

    def attention(models, own, others, centre):
        share = 1 / (1 + jnp.sum(others)) if own_weight is None else own_weight
        # Without others the softmax is over all clients, and is multiplied by 0.
        scores = jnp.where(others > 0, sigma * affinity.cosines(models, own), -jnp.inf)
        scores = jnp.where(jnp.any(others > 0), scores, 0)
        return (1 - share) * others * jax.nn.softmax(scores)

    return attending(task, local, attention, pull, start)
