"""FedProx: FedAvg with a proximal term in the local objective.

Li et al., MLSys 2020, https://arxiv.org/abs/1812.06127 (Algorithm 2).

    Server   w                Client  nothing
    Message  w                Upload  w_k, the parameters after local training

Client k minimises  h_k(v) = F_k(v) + mu / 2 ||v - w||^2  from v = w. The rest is
FedAvg. The inexactness of its solution, over all of its examples, is
gamma_k = ||grad h_k(w_k)|| / ||grad F_k(w)|| (Definition 2): 0 for an exact solution
and 1 for w itself.

Differs from the paper: Algorithm 2 draws clients by their size, with replacement, and
averages uniformly (`--selection by_size`). By default clients are drawn uniformly here
and weighted by their examples, as in FedAvg.
"""

import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import statistics, tree
from pfljax.core.factories import component
from pfljax.core.losses import proximal
from pfljax.core.ranges import Count, NotNegative
from pfljax.core.training import fit, full_gradient
from pfljax.core.types import Algorithm, Array, ClientData, Local, Params, Task


@component
def fedprox(
    task: Task,
    local: Local,
    *,
    mu: NotNegative = 0.01,
    inexactness: bool = False,
    finetune: Count = 0,
) -> Algorithm:
    """Builds FedProx; `mu` = 0 is FedAvg, and a large `mu` holds clients at w.

    The partial work of stragglers is the task of `pfljax.selection.stragglers`.
    `inexactness` adds the metrics gamma and mu, and costs two passes over the client's
    examples. The `finetune` steps do without the proximal term.

    Args:
      mu: weight of the proximal term; 0 is FedAvg.
      inexactness: add the metric gamma, which costs two passes over a client's
        examples.
      finetune: local steps before the evaluation; 0 for none.
    """

    def train(turn, w, client, data):
        # A penalty and not a part of the loss: the metric "loss" is still F_k.
        near = proximal(w, mu)
        w_k, metrics = fit(task.loss, w, data, turn, local, penalty=near)
        if inexactness:
            metrics["gamma"] = gamma(task, w_k, w, mu, data, local.batch_size)
            metrics["mu"] = jnp.float32(mu)
        return client, w_k, metrics

    return fedavg(task, local, finetune=finetune)._replace(train=train)


def gamma(
    task: Task,
    w_k: Params,
    w: Params,
    mu: float,
    data: ClientData,
    batch_size: int,
) -> Array:
    """gamma_k of the solution w_k, f32[]; 0 if both w and w_k are stationary.

    At w the proximal term has no gradient, so grad h_k(w) = grad F_k(w).
    """
    _, slope = full_gradient(task.loss, w_k, data, batch_size)
    pull = statistics.without(tree.sub(w_k, w))
    left = tree.square_norm(tree.axpy(mu, pull, slope))
    _, slope_at_w = full_gradient(task.loss, w, data, batch_size)
    whole = tree.square_norm(slope_at_w)
    return jnp.sqrt(left / jnp.maximum(whole, jnp.finfo(jnp.float32).tiny))
