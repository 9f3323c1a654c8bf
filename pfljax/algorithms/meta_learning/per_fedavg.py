"""Per-FedAvg: clients train a model that adapts well in one gradient step.

Fallah et al., NeurIPS 2020, https://arxiv.org/abs/2002.07948 (Algorithm 1).

    Server   w                Client  nothing
    Message  w                Upload  w_k, the parameters after local meta-steps

A local step (eq. 6-8) uses three independent batches D, D', D'':
v = w - inner_lr grad f(w; D);  g = grad f(v; D');
w <- w - rate (g - inner_lr H(w; D'') g)
with the local learning rate as `rate`. The server takes the uniform mean. Client k is
evaluated with w after `adapt` gradient steps of size inner_lr over all its training
examples.

D and D'' are drawn with replacement, and D' is the minibatch of the step. No decay of
the learning rate (`lr_decay`) lowers inner_lr.
"""

from functools import partial
from typing import Literal

import jax

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.minibatches import sample
from pfljax.core.ranges import Count, NotNegative, Positive
from pfljax.core.training import descend, fit, full_gradient
from pfljax.core.types import Algorithm, Local, Task

Variant = Literal["first_order", "hessian", "hessian_free"]
# Of a step; the exact product costs as much as two gradients.
GRADIENTS = {"first_order": 2, "hessian": 4, "hessian_free": 4}


@component
def per_fedavg(
    task: Task,
    local: Local,
    *,
    inner_lr: NotNegative = 0.01,
    variant: Variant = "hessian",
    delta: Positive = 1e-3,
    adapt: Count = 1,
) -> Algorithm:
    """Builds Per-FedAvg; `inner_lr` = 0 is FedAvg with uniform weights.

    "hessian" computes the Hessian-vector product H g exactly, "hessian_free" by the
    difference of the gradients `delta` g ahead and behind, and "first_order" drops it.

    Args:
      inner_lr: rate of the adaptation step; 0 is FedAvg.
      variant: how H g is computed: "hessian", "hessian_free" or "first_order".
      delta: step of the difference of gradients.
      adapt: adaptation steps before an evaluation.
    """
    grad = jax.grad(task.loss)
    slope_of = jax.value_and_grad(task.loss)
    spacing = None if variant == "hessian" else delta

    def meta_gradient(data, w, batch, key):
        # Three batches: the product of dependent gradients would be biased.
        size = local.batch_size
        first = sample(data, derive(key, "D"), size)
        third = sample(data, derive(key, "D''"), size)
        # The metric "loss" is that of w, not of v after its inner step.
        value, slope = slope_of(w, first, key)
        v = tree.axpy(-inner_lr, slope, w)
        g = grad(v, batch, key)
        if variant == "first_order":
            return value, g

        def grad_of_third(w):
            return grad(w, third, key)

        product = hessian_times(grad_of_third, w, g, spacing)
        return value, tree.axpy(-inner_lr, product, g)

    def train(turn, w, client, data):
        gradient = partial(meta_gradient, data)
        w, metrics = fit(task.loss, w, data, turn, local, gradient)
        return client, w, metrics

    def personal(turn, w, client, data):
        # In evaluation mode: the adaptation depends on w and the examples alone.
        def slope(w):
            return full_gradient(task.loss, w, data, local.batch_size)[1]

        return descend(slope, w, adapt, inner_lr)

    return fedavg(task, local)._replace(
        train=train,
        work=lambda steps, size, is_first: GRADIENTS[variant] * steps,
        # The objective is the mean of F_k over clients, whatever their sizes.
        aggregate=aggregation.averaging("uniform"),
        personal=personal,
        adaptation_steps=adapt,
    )


def hessian_times(grad, w, g, delta):
    """The Hessian at w times g: exact, or by gradients `delta` g ahead and behind."""
    if delta is None:
        _, product = jax.jvp(grad, (w,), (g,))
        return product
    ahead = grad(tree.axpy(delta, g, w))
    behind = grad(tree.axpy(-delta, g, w))
    change = tree.sub(ahead, behind)
    return tree.scale(change, 1 / (2 * delta))
