"""APFL. Deng, Kamani, Mahdavi, 2020, https://arxiv.org/abs/2003.13461 (Algorithm 1).

    Server   w                Client  v_k, alpha_k
    Message  w                Upload  w_k, the federated params after local training
With m = alpha v + (1 - alpha) w, each step moves, all from the values before it,
w by grad f(w),  v by alpha grad f(m),  alpha by <grad f(m), v - w>, clipped to [0, 1];
w is FedAvg's. Client k is judged by m with the newest w, or by w before it ever took
part.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax import reduce, tree
from pfljax.algorithms.fedavg import fedavg
from pfljax.local import beside, derive, fit, learning_rate, minibatch
from pfljax.newcomers import newcomers_take_w
from pfljax.types import Algorithm, Local, Task

FORMS = ("paper", "fedjax", "fedtorch", "superfed-code")


class Mixed(NamedTuple):
    """What a client keeps."""

    v: Any
    alpha: Any  # f32[]; a tree of them, one a tensor, as in fedjax


def apfl(
    task: Task,
    local: Local,
    *,
    alpha: float = 0.5,
    adaptive: bool = True,
    as_in: str = "paper",
    weighting: str = "uniform",
) -> Algorithm:
    """Builds APFL from `alpha`, which is learned if `adaptive`.

    Fixed, `alpha` = 0 is FedAvg and 1 local training. as_in="fedjax" has an alpha a
    tensor and moves v by grad f(m) without the factor alpha; "superfed-code" mixes with
    the w that the round began with (its numbers: alpha=0.25, adaptive=False);
    "fedtorch", the authors' own code, mixes logits, see `fedtorch`.
    """
    if as_in not in FORMS:
        raise ValueError(f"as_in is {as_in!r}; known: {', '.join(FORMS)}")
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha}; expected 0 <= alpha <= 1")
    weights = reduce.weighting(weighting)

    def first(params, client_id, key):
        share = jnp.float32(alpha)
        shares = jax.tree.map(lambda _: share, params) if as_in == "fedjax" else share
        return Mixed(params, shares)

    shared = fedavg(task, local)._replace(
        init_client=first,
        message=lambda w, own: w,
        aggregate=lambda w, uploads, cohort: reduce.mean(uploads, weights(cohort)),
    )
    if as_in == "fedtorch":
        return fedtorch(shared, task, local, adaptive)
    mixture = shared._replace(
        train=trained(task, local, adaptive, as_in),
        personal=lambda turn, w, own, data: tree.lerp(w, own.v, own.alpha),
        endpoints=lambda w, own: (w, own.v),
    )
    return newcomers_take_w(mixture)


def trained(task: Task, local: Local, adaptive: bool, as_in: str) -> Any:
    """The `train` of all forms that mix parameters."""
    slope_of = jax.value_and_grad(task.loss)
    a_tensor, stale = as_in == "fedjax", as_in == "superfed-code"

    def train(turn, w, own, data):
        def gradient(params, batch, key):
            now, v, share = params
            value, slope = slope_of(now, batch, key)
            base = w if stale else now
            _, mixed = slope_of(tree.lerp(base, v, share), batch, key)
            pull = mixed if a_tensor else tree.scale(mixed, share)
            along = tree.sub(v, base)
            turned = products(mixed, along) if a_tensor else tree.dot(mixed, along)
            return value, (slope, pull, tree.scale(turned, float(adaptive)))

        start, labels = (w, *own), ("model", "model", "other")
        stepped = beside(local, labels, within_one)
        found, metrics = fit(task.loss, start, data, turn, stepped, gradient)
        w, v, share = found
        return Mixed(v, share), w, metrics

    return train


def products(a: Any, b: Any) -> Any:
    """The inner product of each tensor of two trees."""
    return jax.tree.map(lambda x, y: jnp.sum(x * y), a, b)


def within_one(rate: Any) -> optax.GradientTransformation:
    """Gradient descent of numbers that stay within [0, 1]."""

    def clip(updates, params):
        return jax.tree.map(lambda u, p: jnp.clip(p + u, 0, 1) - p, updates, params)

    return optax.chain(optax.sgd(rate), optax.stateless(clip))


class Logits(NamedTuple):
    """A personal model that mixes the logits of two."""

    w: Any
    v: Any
    alpha: Any


def fedtorch(shared: Algorithm, task: Task, local: Local, adaptive: bool) -> Algorithm:
    """APFL as in the authors' code, FedTorch.

    The model is alpha f_v(x) + (1 - alpha) f_w(x). Each step moves w first, then v with
    that w. alpha moves at the first step of a round alone, by <v - w, alpha g_v +
    (1 - alpha) g_w> + 0.02 alpha, with g_v and g_w the gradients of the mixed model's
    loss. That loss is the cross-entropy of the logits that `predict` gives: dropout
    does not act on v.
    """

    def predict(model, x):
        a, b = task.predict(model.w, x), task.predict(model.v, x)
        return tree.lerp(a, b, model.alpha)

    def mixed_loss(pair, share, batch):
        logits = predict(Logits(pair[0], pair[1], share), batch.x)
        each = optax.softmax_cross_entropy_with_integer_labels(logits, batch.y)
        return (each * batch.mask).sum() / jnp.maximum(batch.mask.sum(), 1)

    def train(turn, w, own, data):
        rate = learning_rate(local, turn.round)
        optimizer = local.optimizer(rate)
        order, noise = derive(turn.key, "minibatches"), derive(turn.key, "noise")

        def moved(params, slope, moments):
            updates, moments = optimizer.update(slope, moments, params)
            return optax.apply_updates(params, updates), moments

        def step(index, carry):
            w, v, share, of_w, of_v, total = carry
            batch = minibatch(data, index, order, local.batch_size)
            key = jax.random.fold_in(noise, index)
            value, slope = jax.value_and_grad(task.loss)(w, batch, key)
            w, of_w = moved(w, slope, of_w)
            g_w, g_v = jax.grad(mixed_loss)((w, v), share, batch)
            along = tree.dot(tree.sub(v, w), tree.lerp(g_w, g_v, share)) + 0.02 * share
            turned = jnp.where(index == 0, rate * adaptive * along, 0)
            v, of_v = moved(v, g_v, of_v)
            return w, v, jnp.clip(share - turned, 0, 1), of_w, of_v, total + value

        moments = optimizer.init(w), optimizer.init(own.v)
        start = w, own.v, own.alpha, *moments, jnp.float32(0)
        w, v, share, *_, total = jax.lax.fori_loop(0, turn.steps, step, start)
        return Mixed(v, share), w, {"loss": total / jnp.maximum(turn.steps, 1)}

    mixture = shared._replace(
        train=train,
        personal=lambda turn, w, own, data: Logits(w, own.v, own.alpha),
        predict=predict,
    )
    return newcomers_take_w(mixture, lambda w: Logits(w, w, jnp.float32(0)))
