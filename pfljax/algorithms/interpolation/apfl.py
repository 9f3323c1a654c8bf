"""APFL. Deng, Kamani, Mahdavi, 2020, https://arxiv.org/abs/2003.13461 (Algorithm 1).

    Server   w                Client  v_k, alpha_k
    Message  w                Upload  w_k, the federated params after local training
With m = alpha v + (1 - alpha) w, each step moves, all from the values before it,
w by grad f(w),  v by alpha grad f(m),  alpha by <grad f(m), v - w>, clipped to [0, 1];
w is the uniform mean of w_k. Client k is judged by m with the newest w, or by w
before it ever took part.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, tree
from pfljax.core.optimizers import beside, within_one
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Array, Local, Params, Task
from pfljax.registry import Share, component


class Mixed(NamedTuple):
    """What a client keeps."""

    v: Params
    alpha: Array  # f32[]


@component
def apfl(
    task: Task, local: Local, *, alpha: Share = 0.5, adaptive: bool = True
) -> Algorithm:
    """Builds APFL from `alpha`, which is learned if `adaptive`.

    Fixed, `alpha` = 0 is FedAvg with uniform weights and 1 local training.

    Args:
      alpha: share of the client's own model in what is judged, or where it begins.
      adaptive: alpha is learned.
    """
    slope_of = jax.value_and_grad(task.loss)

    def gradient(params, batch, key):
        w, v, share = params
        # The loss that is reported is of w, the federated model.
        value, slope_w = slope_of(w, batch, key)
        m = tree.lerp(w, v, share)
        _, slope_m = slope_of(m, batch, key)
        slope_v = tree.scale(slope_m, share)
        apart = tree.sub(v, w)
        slope_alpha = tree.dot(slope_m, apart) * float(adaptive)
        return value, (slope_w, slope_v, slope_alpha)

    def train(turn, w, mixed, data):
        # alpha is no weight: neither momentum nor decay, and within [0, 1].
        stepped = beside(local, ("model", "model", "other"), within_one)
        start = (w, mixed.v, mixed.alpha)
        (w, v, share), metrics = fit(task.loss, start, data, turn, stepped, gradient)
        return Mixed(v=v, alpha=share), w, metrics

    return fedavg(task, local)._replace(
        init_client=lambda params, client_id, key: Mixed(params, jnp.float32(alpha)),
        train=train,
        aggregate=aggregation.averaging("uniform"),
        personal=lambda turn, w, mixed, data: tree.lerp(w, mixed.v, mixed.alpha),
        newcomer=lambda turn, w, data: w,
        endpoints=lambda w, mixed: (w, mixed.v),
    )
