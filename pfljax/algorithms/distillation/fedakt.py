"""FedAKT. Liu et al., JSA 2025, https://doi.org/10.1016/j.sysarc.2025.103338 (eq. 15).

    Server   d, the adapter   Client  w_k = (f_k, h_k), this client's own body and head
    Message  d                Upload  d_k, the adapter after local training
The adapter is a small body that all clients have alike. Each step goes down
CE(h(f(x))) + CE(h(d(x))) + lam MSE(f(x), d(x))  in f_k, h_k and d_k at once. The head
sees both features (HDU); the distance is a mean over features, and draws both bodies
(FMD); the second CE does not reach f_k. d <- sum_k n_k d_k / sum_k n_k. Client k is
judged by w_k, also before it ever took part. The adapter is the body of `task.proxy`,
or of a second model of the task, and begins from a key of its own. Running statistics
of d_k stay with client k.

Differs from the paper: its losses are sums over a batch, here by default means. On the
adapter's features the head is in evaluation mode: its dropout is off, and its running
statistics follow those of f_k alone.
"""

from typing import Literal

import jax.numpy as jnp

from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation, tree
from pfljax.core.keys import derive
from pfljax.core.local_statistics import keep_of_proxy
from pfljax.core.losses import cross_entropy, square_distance
from pfljax.core.training import fit, reporting
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import NotNegative, component


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

    Without `hdu` the head learns of its own body's features alone, and the adapter of
    the distance alone; then `lam` = 0 is local training. `fmd_grad_scale` = 2 is what
    a backward pass of each of the paper's two losses gives, twice the distance.

    Args:
      lam: weight of the distance between features; 0 is without it.
      hdu: head and adapter also learn of each other's features.
      reduction: of losses over a batch: "mean", or "sum" as in the paper.
      fmd_grad_scale: factor of the distance's gradient; 2 is two backward passes.
    """
    proxy = task.proxy or task
    require_equal_features(task, proxy)
    in_body = tree.matches(proxy.groups, "body")

    def objective(pair, batch, key):
        w, adapter = pair
        features = task.features(w, batch, key)
        shared = proxy.features(adapter, batch, derive(key, "adapter"))
        logits = task.head(w, features, batch.mask, key)
        loss = cross_entropy(logits, batch)
        of_adapter = cross_entropy(task.head(w, shared), batch)
        gap = square_distance(features, shared, batch)
        total = loss + float(hdu) * of_adapter + lam * fmd_grad_scale * gap
        rows = jnp.sum(batch.mask) if reduction == "sum" else 1
        return rows * total, loss

    def train(turn, adapter, w, data):
        start = (w, adapter)
        slope_of = reporting(objective)
        (w, adapter), metrics = fit(task.loss, start, data, turn, local, slope_of)
        return w, adapter, metrics

    def init(params, num_clients, key):
        return tree.split(proxy.init(key), in_body)[0]

    method = alone(task, local)._replace(
        init=init,
        message=lambda turn, adapter, w: adapter,
        train=train,
        aggregate=aggregation.averaging("rows"),
        parts=("body", "head"),
    )
    return keep_of_proxy(method, proxy)


def require_equal_features(task, proxy):
    """Raises a ValueError unless the bodies of both make features of one shape."""
    own = task.feature_shape
    shared = proxy.feature_shape
    if own != shared:
        raise ValueError(
            f"the features of the model have shape {own} and those of the adapter "
            f"{shared}; choose models whose features have one shape"
        )
