"""FedSAM: clients descend by the gradient at a worse point nearby, towards flat minima.

Caldarola, Caputo, Ciccone, ECCV 2022, https://arxiv.org/abs/2203.11834; Qu et al., ICML
2022, https://arxiv.org/abs/2206.02618.

    Server   w                Client  nothing
    Message  w                Upload  w_k, the parameters after local training

Each local step is one of the optimizer with  grad f(v + e)  in place of grad f(v), on
the same minibatch. With t of ones, or for ASAM t = |v| + eta for all parameters but
biases,

    e = rho t^2 grad f(v) / ||t grad f(v)||

by coordinate, where the norm is that of all parameters. The rest is FedAvg. Momentum
and weight decay see the gradient at v + e alone. Losses and running statistics are
those at v; in published code for PyTorch, statistics move at both points.
"""

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import statistics, tree
from pfljax.core.factories import component
from pfljax.core.ranges import Count, NotNegative
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task


@component
def fedsam(
    task: Task,
    local: Local,
    *,
    rho: NotNegative = 0.1,
    adaptive: bool = False,
    eta: NotNegative = 0.2,
    finetune: Count = 0,
) -> Algorithm:
    """Builds FedSAM; `rho` = 0, or a loss that is linear in w, is FedAvg.

    Args:
      rho: distance of the worse point; 0 is FedAvg.
      adaptive: whether it is that of ASAM, which follows the scale of each parameter.
      eta: added to the scales of ASAM.
      finetune: local steps before the evaluation; 0 for none.
    """
    slope_of = jax.value_and_grad(task.loss)

    def gradient(v, batch, key):
        loss, slope = slope_of(v, batch, key)
        scale = scales(v, eta) if adaptive else tree.full(v, 1)
        _, above = slope_of(tree.add(v, ascent(slope, scale, rho)), batch, key)
        running, _ = tree.split(slope, statistics.mask(slope))
        return loss, tree.merge(running, tree.parameters(above))

    def train(turn, w, client, data):
        w_k, metrics = fit(task.loss, w, data, turn, local, gradient)
        return client, w_k, metrics

    return fedavg(task, local, finetune=finetune)._replace(
        train=train,
        work=lambda steps, size, is_first: 2 * steps,
    )


def ascent(slope, scale, rho):
    """e, of the length rho if all scales are 1; 0 where there is no slope."""
    scaled = tree.multiply(scale, statistics.without(slope))
    length = jnp.sqrt(tree.square_norm(scaled))
    towards = tree.multiply(scale, scaled)
    return tree.scale(towards, rho / jnp.maximum(length, 1e-16))


def scales(v, eta):
    """t of ASAM: |v| + eta, and 1 at biases."""

    def on_leaf(path, leaf):
        is_bias = jax.tree_util.keystr(path[-1:], simple=True) == "bias"
        return jnp.ones_like(leaf) if is_bias else jnp.abs(leaf) + eta

    return jax.tree_util.tree_map_with_path(on_leaf, v)
