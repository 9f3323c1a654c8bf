"""APFL as in its authors' code, FedTorch. Deng et al., 2020, https://arxiv.org/abs/2003.13461.

    Server   w                Client  v_k, alpha_k
    Message  w                Upload  w_k, the federated params after local training
The model mixes logits: alpha f_v(x) + (1 - alpha) f_w(x). Each step moves w first, by
grad f(w), then v, by the gradient g_v of the mixed model's loss with that w. alpha
moves last and at the first step of a round alone, by
<v - w, alpha g_v + (1 - alpha) g_w> + 0.02 alpha, clipped to [0, 1]: with the w and v
after their steps, and the gradients g from before that of v. w is FedAvg's of the same
weighting. Client k is evaluated with the mixture with the newest w, or with w before it
first takes part.

Differs from the paper in each of these; `apfl` is the paper's.
"""

import jax
import jax.numpy as jnp
import optax

from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.interpolation.apfl import Mixed
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.optimizers import learning_rate
from pfljax.core.ranges import Share
from pfljax.core.training import over_batches
from pfljax.core.types import Algorithm, Local, Task


@component
def apfl_fedtorch(
    task: Task,
    local: Local,
    *,
    alpha: Share = 0.5,
    adaptive: bool = True,
    weighting: str = "uniform",
) -> Algorithm:
    """Builds APFL as FedTorch has it, from `alpha`, which is learned if `adaptive`.

    The mixed model's loss is the cross-entropy of what `task.predict` gives: dropout
    does not act on v.
    """
    slopes_of = jax.grad(mixed_loss)

    def train(turn, w, own, data):
        rate = learning_rate(local, turn.round)
        optimizer = local.optimizer(rate)

        def step(carry, batch, key):
            (w, v, share), of_w, of_v, first = carry
            value, slope = jax.value_and_grad(task.loss)(w, batch, key)
            w, of_w = moved(optimizer, w, slope, of_w)
            slopes = slopes_of(mixture(w, v, share), task, batch)
            v, of_v = moved(optimizer, v, slopes["v"], of_v)
            turned = adaptive * first * rate * slope_alpha(w, v, share, slopes)
            moved_on = w, v, jnp.clip(share - turned, 0, 1)
            return (moved_on, of_w, of_v, jnp.bool_(False)), {"loss": value}

        moments = optimizer.init(w), optimizer.init(own.v)
        start = (w, *own), *moments, jnp.bool_(True)
        end, metrics = over_batches(step, start, data, turn, local)
        w, v, share = end[0]
        return Mixed(v, share), w, metrics

    return fedavg(task, local)._replace(
        classes=True,
        init_client=lambda params, client_id, key: Mixed(params, jnp.float32(alpha)),
        train=train,
        aggregate=aggregation.averaging(weighting),
        personal=lambda turn, w, own, data: mixture(w, *own),
        newcomer=lambda turn, w, data: mixture(w, w, jnp.float32(0)),
        predict=lambda model, batch: mixed_logits(task, model, batch),
    )


def mixture(w, v, alpha):
    """The model that is evaluated and exported: two networks, whose logits mix."""
    return {"w": w, "v": v, "alpha": alpha}


def moved(optimizer, params, slope, moments):
    """(params, moments) after a step; `fit` would step v from the w before its own."""
    updates, moments = optimizer.update(slope, moments, params)
    return optax.apply_updates(params, updates), moments


def mixed_logits(task, model, batch):
    """alpha f_v(x) + (1 - alpha) f_w(x); f_w(x) of the server's model, which is w."""
    if "alpha" not in model:
        return task.predict(model, batch)
    of_w, of_v = (task.predict(model[name], batch) for name in ("w", "v"))
    return tree.lerp(of_w, of_v, model["alpha"])


def mixed_loss(model, task, batch):
    """Cross-entropy of the mixed logits, mean over the rows that count."""
    logits = mixed_logits(task, model, batch)
    each = optax.softmax_cross_entropy_with_integer_labels(logits, batch.y)
    return (each * batch.mask).sum() / jnp.maximum(batch.mask.sum(), 1)


def slope_alpha(w, v, share, slopes):
    """FedTorch's gradient of alpha: slopes["v"] has the factor alpha already."""
    both = tree.lerp(slopes["w"], slopes["v"], share)
    return tree.dot(tree.sub(v, w), both) + 0.02 * share
