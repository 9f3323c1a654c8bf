"""Optimizers of local training, as functions of the learning rate."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from pfljax.core.types import Local


def sgd(
    momentum: Any = None, weight_decay: Any = None
) -> Callable[[Any], optax.GradientTransformation]:
    """SGD in torch's convention, as a function of the learning rate.

    g <- grad + weight_decay w;  v <- momentum v + g (v starts at g);  w <- w - rate v.
    """

    def build(rate: Any) -> optax.GradientTransformation:
        parts = []
        # Decay comes before momentum, which so remembers it: torch's order.
        if weight_decay is not None:
            parts.append(optax.add_decayed_weights(weight_decay))
        if momentum is not None:
            parts.append(optax.trace(decay=momentum))
        parts.append(optax.scale_by_learning_rate(rate))
        return optax.chain(*parts)

    return build


def beside(
    local: Local,
    labels: Any,
    other: Callable[[Any], optax.GradientTransformation],
) -> Local:
    """Local training of a tuple whose parts have two optimizers.

    `labels` names each part: "model", stepped by the optimizer of `local`, or "other",
    stepped by `other`, a function of the learning rate.
    """

    def optimizer(rate: Any) -> optax.GradientTransformation:
        parts: dict[Any, Any] = {
            "model": local.optimizer(rate),
            "other": other(rate),
        }
        return optax.partition(parts, labels)

    return local._replace(optimizer=optimizer)


def within_one(rate: Any) -> optax.GradientTransformation:
    """Gradient descent of numbers that stay within [0, 1]."""

    def clip(updates, params):
        return jax.tree.map(lambda u, p: jnp.clip(p + u, 0, 1) - p, updates, params)

    return optax.chain(optax.sgd(rate), optax.stateless(clip))
