"""Per-FedAvg. Fallah et al., NeurIPS 2020, https://arxiv.org/abs/2002.07948.

    Server   w                Client  nothing
    Message  w                Upload  w_k, the params after local meta-steps
A local step (eq. 6-8, Algorithm 1), on three independent batches D, D', D'':
v = w - inner_lr grad f(w; D);  g = grad f(v; D');
w <- w - rate (g - inner_lr H(w; D'') g)
with the local learning rate as `rate`. The server takes the uniform mean. Client k is
judged by w after `adapt` gradient steps of size inner_lr on all its training rows.

D and D'' are drawn with replacement, D' is the minibatch of the step. No decay of the
learning rate (`lr_decay`) lowers inner_lr.
"""

import jax

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, tree
from pfljax.core.keys import derive
from pfljax.core.training import fit, full_gradient, sample
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import Count, NotNegative, Positive

VARIANTS = ("first_order", "hessian", "hessian_free")


def per_fedavg(
    task: Task,
    local: Local,
    *,
    inner_lr: NotNegative = 0.01,
    variant: str = "hessian",
    delta: Positive = 1e-3,
    adapt: Count = 1,
) -> Algorithm:
    """Builds Per-FedAvg; `inner_lr` = 0 is FedAvg with uniform weights.

    "first_order" drops the Hessian H, "hessian_free" takes H g from the difference of
    two gradients `delta` g apart on either side, "hessian" is exact.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant is {variant!r}; known: {', '.join(VARIANTS)}")
    grad, exact = jax.grad(task.loss), variant == "hessian"

    def train(turn, w, client, data):
        def meta_gradient(w, batch, key):
            first = sample(data, derive(key, "D"), local.batch_size)
            third = sample(data, derive(key, "D''"), local.batch_size)
            value, slope = jax.value_and_grad(task.loss)(w, first, key)
            v = tree.axpy(-inner_lr, slope, w)
            g = grad(v, batch, key)
            if variant == "first_order":
                return value, g
            of_third = lambda w: grad(w, third, key)  # noqa: E731
            turned = hessian_times(of_third, w, g, None if exact else delta)
            return value, tree.axpy(-inner_lr, turned, g)

        w, metrics = fit(task.loss, w, data, turn, local, meta_gradient)
        return client, w, metrics

    def personal(turn, w, client, data):
        def step(_, w):
            size = local.batch_size
            _, grads = full_gradient(task.loss, w, data, size)
            return tree.axpy(-inner_lr, grads, w)

        return jax.lax.fori_loop(0, adapt, step, w)

    return fedavg(task, local)._replace(
        train=train,
        aggregate=lambda w, uploads, cohort: aggregation.mean(
            uploads, cohort.draws * cohort.mask
        ),
        personal=personal,
        adaptation_steps=adapt,
    )


def hessian_times(grad, w, g, delta):
    """The Hessian at w times g: exact, or by gradients `delta` g before and behind."""
    if delta is None:
        return jax.jvp(grad, (w,), (g,))[1]
    ahead, behind = grad(tree.axpy(delta, g, w)), grad(tree.axpy(-delta, g, w))
    return tree.scale(tree.sub(ahead, behind), 1 / (2 * delta))
