"""FedAKT: clients with different models exchange a small adapter of features.

Liu et al., JSA 2025, https://doi.org/10.1016/j.sysarc.2025.103338 (eq. 15).

    Server   d, the adapter   Client  w_k = (f_k, h_k), the body and head of this client
    Message  d                Upload  d_k, the adapter after local training

The adapter is a small body that is the same for all clients. Each step minimises
CE(h(f(x))) + CE(h(d(x))) + lam MSE(f(x), d(x))  in f_k, h_k and d_k at once. The head
is trained on both features (HDU). The distance is a mean over features and pulls both
bodies (FMD). The second CE does not reach f_k. The server takes
d <- sum_k n_k d_k / sum_k n_k.  Client k is evaluated with w_k, even before it first
takes part. The adapter is the body of `task.proxy`, or of a second model of the task,
and is drawn with a key of its own. The running statistics of d_k stay with client k.

Differs from the paper, whose losses are sums over a batch; by default they are means
here. On the adapter's features the head is in evaluation mode: dropout is off, and its
running statistics follow the features of f_k alone.
"""

from typing import Literal

import jax.numpy as jnp

from pfljax.algorithms._models import size_ratio
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.local_statistics import keep_of_proxy
from pfljax.core.losses import data_loss, square_distance
from pfljax.core.ranges import NotNegative
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Local, Task


@component
def fedakt(
    task: Task,
    local: Local,
    *,
    lam: NotNegative = 3.0,
    hdu: bool = True,
    reduction: Literal["mean", "sum"] = "mean",
    fmd_grad_scale: Literal[1, 2] = 1,
) -> Algorithm:
    """Builds FedAKT; `lam` = 0 is the paper's ablation without FMD.

    Without `hdu` the head is trained on its own body's features alone, and the adapter
    by the distance alone; then `lam` = 0 is local training. One backward pass for each
    of the paper's two losses has the gradient of the distance twice: `fmd_grad_scale`
    = 2.

    Args:
      lam: weight of the distance between features; 0 leaves it out.
      hdu: whether the head is also trained on the adapter's features.
      reduction: reduction of the losses over a batch: "mean", or "sum" as in the paper.
      fmd_grad_scale: factor of the distance's gradient; 2 for two backward passes.
    """
    proxy = task.proxy or task
    require_equal_features(task, proxy)
    in_body = tree.matches(proxy.groups, "body")

    def objective(pair, batch, key):
        w, adapter = pair
        features = task.features(w, batch, key)
        shared = proxy.features(adapter, batch, derive(key, "adapter"))
        logits = task.head(w, features, batch.mask, key)
        loss = data_loss(task, logits, batch)
        of_adapter = data_loss(task, task.head(w, shared), batch)
        gap = square_distance(features, shared, batch)
        total = loss + float(hdu) * of_adapter + lam * fmd_grad_scale * gap
        factor = jnp.sum(batch.mask) if reduction == "sum" else 1
        return factor * total, loss

    def train(turn, adapter, w, data):
        pair, metrics = fit_objective(objective, (w, adapter), data, turn, local)
        return *pair, metrics

    def init(params, num_clients, key):
        return tree.split(proxy.init(key), in_body)[0]

    method = alone(task, local)._replace(
        init=init,
        message=lambda turn, adapter, w: adapter,
        train=train,
        work=lambda steps, size, is_first: (1 + size_ratio(proxy, task)) * steps,
        aggregate=aggregation.averaging("examples"),
        parts=("body", "head"),
    )
    return keep_of_proxy(method, proxy)


def require_equal_features(task, proxy):
    """Raises a ValueError unless both bodies have features of the same shape."""
    shape = task.feature_shape
    proxy_shape = proxy.feature_shape
    if shape != proxy_shape:
        raise ValueError(
            f"the features of the model have shape {shape} and those of the adapter "
            f"{proxy_shape}; choose models whose features have one shape"
        )
