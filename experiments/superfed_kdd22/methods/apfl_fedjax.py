"""APFL as in FedJAX. Deng et al., 2020, https://arxiv.org/abs/2003.13461.

    Server   w                Client  v_k, alpha_k, whether it ever trained
    Message  w                Upload  w_k, the federated params after local training
An alpha a tensor mixes v and w to m. v moves by grad f(m), without the factor alpha,
and starts at the w of the client's first round. The server weighs by rows. In FedJAX
alpha has the momentum of v, too; here it has none.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.interpolation.apfl import apfl
from pfljax.core import tree
from pfljax.core.factories import component
from pfljax.core.optimizers import beside, within_one
from pfljax.core.ranges import Share
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Array, Local, Params, Task


class Client(NamedTuple):
    """What a client keeps."""

    v: Params
    alpha: Any  # f32[] at every leaf of v
    begun: Array  # bool[]


@component
def apfl_fedjax(task: Task, local: Local, *, alpha: Share = 0.5) -> Algorithm:
    """Builds it, from `alpha`, which is learned."""
    slope_of = jax.value_and_grad(task.loss)

    def init_client(params, client_id, key):
        shares = jax.tree.map(lambda _: jnp.float32(alpha), params)
        return Client(v=params, alpha=shares, begun=jnp.bool_(False))

    def gradient(params, batch, key):
        w, v, share = params
        value, slope_w = slope_of(w, batch, key)
        _, slope_m = slope_of(tree.lerp(w, v, share), batch, key)
        apart = tree.sub(v, w)
        slope_alpha = jax.tree.map(lambda a, b: jnp.sum(a * b), slope_m, apart)
        return value, (slope_w, slope_m, slope_alpha)

    def train(turn, w, client, data):
        start = w, tree.where(client.begun, client.v, w), client.alpha
        stepped = beside(local, ("model", "model", "other"), within_one)
        end, metrics = fit(task.loss, start, data, turn, stepped, gradient)
        w, v, share = end
        return Client(v=v, alpha=share, begun=jnp.bool_(True)), w, metrics

    return apfl(task, local, alpha=alpha)._replace(
        init_client=init_client,
        train=train,
        aggregate=fedavg(task, local).aggregate,
    )
