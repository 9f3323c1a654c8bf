"""Optimizers of local training, as functions of the learning rate."""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import optax

from pfljax import registry
from pfljax.core.types import Local
from pfljax.registry import BELOW_ONE, NOT_NEGATIVE, Choice, NotNegative, checked

BelowOne = Annotated[float, BELOW_ONE]
Momentum = Annotated[float | None, BELOW_ONE]
Decay = Annotated[float | None, NOT_NEGATIVE]


@checked
def sgd(
    momentum: Momentum = None, weight_decay: Decay = None
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


def ranges_of_optax(
    *,
    b1: BelowOne,
    b2: BelowOne,
    b3: BelowOne,
    rho: BelowOne,
    decay: BelowOne,
    momentum: Momentum,
    eps: NotNegative,
    eps_root: NotNegative,
    weight_decay: NotNegative,
) -> None:
    """The options that mean the same in all optimizers of optax, with their ranges.

    optax takes any number: with `b1` = 2 Adam's mean grows without end.
    """


def of_optax(choice: Choice) -> Callable[[Any], optax.GradientTransformation]:
    """The optimizer of this name in optax, as a function of the learning rate."""
    return functools.partial(getattr(optax, choice.name), **choice.kwargs)


def check(choice: Choice) -> None:
    """Raises a ValueError for a name or an option that is unknown, or out of range.

    Tried on a single number, for optax has no list of its optimizers, and losses and
    schedules are callable, too.
    """
    if choice.name == "sgd":
        if choice.args:
            raise ValueError("sgd takes its options from momentum and weight_decay")
        return
    check_of_optax(choice)


def check_of_optax(choice: Choice) -> None:
    """As `check`, of optax's own optimizers: its sgd has options, too."""
    if not callable(getattr(optax, choice.name, None)):
        raise ValueError(
            f"unknown optimizer {choice.name!r}; known: sgd, and those of optax by "
            "name, such as adam"
        )
    build = of_optax(choice)

    def step(w: Any) -> Any:
        optimizer = build(0.1)
        return optimizer.update(w, optimizer.init(w), w)

    # Shapes are enough to tell.
    try:
        jax.eval_shape(step, jax.ShapeDtypeStruct((), jnp.float32))
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"optimizer {str(choice)!r} cannot be built ({error}); "
            "expected an optimizer of optax with its options, such as adam:b1=0.9"
        ) from None
    owner = f"optimizer {choice.name!r}"
    registry.check_values(owner, ranges_of_optax, choice.kwargs)


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


def whole_step(rate: Any) -> optax.GradientTransformation:
    """An optimizer whose step is the gradient itself, at any learning rate."""
    return optax.scale(-1.0)


def within_one(rate: Any) -> optax.GradientTransformation:
    """Gradient descent of numbers that stay within [0, 1]."""

    def clip(updates, params):
        return jax.tree.map(lambda u, p: jnp.clip(p + u, 0, 1) - p, updates, params)

    return optax.chain(optax.sgd(rate), optax.stateless(clip))
