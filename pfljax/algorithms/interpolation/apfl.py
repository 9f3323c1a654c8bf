"""APFL: clients learn how to mix a model of their own with the shared one.

Deng, Kamani, Mahdavi, 2020, https://arxiv.org/abs/2003.13461 (Algorithm 1).

    Server   w                Client  v_k, alpha_k
    Message  w                Upload  w_k, the federated parameters after local training

Let m = alpha v + (1 - alpha) w. Each step moves, all from the values before it, w by
grad f(w), v by alpha grad f(m), and alpha by <grad f(m), v - w>, clipped to [0, 1]. The
new w is the uniform mean of the w_k. Client k is evaluated with m for the newest w, or
with w before it first takes part.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.optimizers import beside, within_one
from pfljax.core.ranges import Share
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Array, Local, Params, Task


class Mixed(NamedTuple):
    """The state of a client."""

    v: Params
    alpha: Array  # f32[]


@component
def apfl(
    task: Task, local: Local, *, alpha: Share = 0.5, adaptive: bool = True
) -> Algorithm:
    """Builds APFL with mixing weights that start at `alpha`.

    If alpha is not `adaptive`, 0 is FedAvg with uniform weights and 1 is local
    training.

    Args:
      alpha: weight of the client's own model in the mixture, or its first weight.
      adaptive: whether alpha is learned.
    """
    slope_of = jax.value_and_grad(task.loss)

    def gradient(params, batch, key):
        w, v, share = params
        # The metric "loss" is that of w, the federated model.
        value, slope_w = slope_of(w, batch, key)
        m = tree.lerp(w, v, share)
        _, slope_m = slope_of(m, batch, key)
        slope_v = tree.scale(slope_m, share)
        apart = tree.sub(v, w)
        slope_alpha = tree.dot(slope_m, apart) * float(adaptive)
        return value, (slope_w, slope_v, slope_alpha)

    def train(turn, w, mixed, data):
        # alpha is no weight: it has neither momentum nor decay, and stays in [0, 1].
        stepped = beside(local, ("model", "model", "other"), within_one)
        start = (w, mixed.v, mixed.alpha)
        (w, v, share), metrics = fit(task.loss, start, data, turn, stepped, gradient)
        return Mixed(v=v, alpha=share), w, metrics

    return fedavg(task, local)._replace(
        init_client=lambda params, client_id, key: Mixed(params, jnp.float32(alpha)),
        train=train,
        work=lambda steps, size, is_first: 2 * steps,
        aggregate=aggregation.averaging("uniform"),
        personal=lambda turn, w, mixed, data: tree.lerp(w, mixed.v, mixed.alpha),
        newcomer=lambda turn, w, data: w,
        endpoints=lambda w, mixed: (w, mixed.v),
    )
