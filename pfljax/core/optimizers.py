"""Optimizers of local training, as functions of the learning rate."""

import functools
import inspect
import re
import types
from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import optax

from pfljax.core import factories, statistics
from pfljax.core.components import Component, is_own
from pfljax.core.factories import validate
from pfljax.core.ranges import BELOW_ONE, NOT_NEGATIVE, BelowOne, NotNegative
from pfljax.core.types import Array, Local

RATE = "learning_rate"  # the first argument of each optimizer of optax
# Parts of optimizers, which may take the rate as well, and one that needs the loss.
NO_OPTIMIZERS = re.compile(r"_|scale_by_|lbfgs")

Momentum = Annotated[float | None, BELOW_ONE]
Decay = Annotated[float | None, NOT_NEGATIVE]
ServerRate = Annotated[float | None, NOT_NEGATIVE]  # None for that of local training


@validate
def sgd(
    momentum: Momentum = None, weight_decay: Decay = None
) -> Callable[[Any], optax.GradientTransformation]:
    """SGD in torch's convention, as a function of the learning rate.

    g <- grad + weight_decay w;  v <- momentum v + g (v starts at g);  w <- w - rate v.
    """

    def build(rate: Any) -> optax.GradientTransformation:
        parts = []
        # Decay comes before momentum, as in torch: momentum includes it.
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

    optax itself takes any number, although with `b1` = 2 Adam's mean diverges.
    """


def from_optax(choice: Component) -> Callable[[Any], optax.GradientTransformation]:
    """The optimizer of optax, or one's own, as a function of the learning rate."""
    function = factories.find("optimizer", known_of_optax(), choice.name)
    return functools.partial(function, **choice.options)


@functools.cache
def known_of_optax() -> dict[str, Callable[..., optax.GradientTransformation]]:
    """The optimizers of optax by name: its functions that take a rate first."""
    functions = {}
    for name, function in vars(optax).items():
        # Some are partial functions, such as nadam, which is adam with an option.
        is_function = isinstance(function, types.FunctionType | functools.partial)
        if not is_function or NO_OPTIMIZERS.match(name):
            continue
        if next(iter(inspect.signature(function).parameters), None) == RATE:
            functions[name] = function
    return functions


def options_of_optax(function: Callable) -> dict[str, inspect.Parameter]:
    """The options of an optimizer of optax, without its rate."""
    parameters = dict(inspect.signature(function).parameters)
    parameters.pop(RATE, None)
    return parameters


def check(choice: Component) -> None:
    """Raises a ValueError for a name or an option that is unknown, or out of range."""
    if choice.name == "sgd":
        if choice.args:
            raise ValueError("sgd takes its options from momentum and weight_decay")
        return
    if RATE in choice.options:
        raise ValueError(
            f"optimizer {str(choice)!r} has a {RATE}, but that of local training is "
            f"the setting lr; give it there: --lr {choice.options[RATE]}"
        )
    check_of_optax(choice)


def check_of_optax(choice: Component, kind: str = "optimizer") -> None:
    """`check` for one's own and those of optax itself, whose sgd has options, too."""
    function = factories.find(kind, known_of_optax(), choice.name)
    owner = f"{kind} {choice.name!r}"
    factories.check_names(owner, options_of_optax(function), choice.options)
    factories.check_values(owner, ranges_of_optax, choice.options)
    if is_own(choice.name):
        factories.check(kind, choice, function)
    build = from_optax(choice)

    def step(w: Any) -> Any:
        optimizer = build(0.1)
        return optimizer.update(w, optimizer.init(w), w)

    # For other options, building it with shapes shows whether optax takes them.
    try:
        jax.eval_shape(step, jax.ShapeDtypeStruct((1,), jnp.float32))
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{kind} {str(choice)!r} cannot be built ({error}); "
            "expected an optimizer of optax with its options, such as adam:b1=0.9"
        ) from None


def clip(
    optimizer: Callable[[Any], optax.GradientTransformation], norm: Any
) -> Callable[[Any], optax.GradientTransformation]:
    """The optimizer, a function of the rate, of gradients with at most this norm."""
    return lambda rate: optax.chain(optax.clip_by_global_norm(norm), optimizer(rate))


def beside(
    local: Local,
    labels: Any,
    other: Callable[[Any], optax.GradientTransformation],
) -> Local:
    """Local training of a tuple whose parts have two optimizers.

    `labels` has the optimizer of each part: "model" for that of `local`, or "other" for
    `other`, a function of the learning rate.
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


def server_rate(rate: Any, local: Local, round_: Array) -> Any:
    """The rate of a server's steps; None stands for that of local training."""
    return learning_rate(local, round_) if rate is None else rate


def local_optimizer(local: Local, round_: Array) -> optax.GradientTransformation:
    """The optimizer of this round; running statistics step outside of it."""
    rate = _rate_of_round(local, round_)
    by_step = local.by_step
    if by_step is None:
        return statistics.beside(local.optimizer(rate))
    # Optimizers of optax count their steps if the rate is a function.
    return statistics.beside(local.optimizer(lambda step: rate * by_step(step)))


def learning_rate(local: Local, round_: Array) -> Any:
    """The one learning rate of this round (0 for the first), traced or not.

    Raises:
      ValueError: the rate changes from step to step within a round.
    """
    if local.by_step is not None:
        raise ValueError(
            "schedule is by=step, but this method computes with one learning rate for "
            "all steps of a round; choose by=round"
        )
    return _rate_of_round(local, round_)


def _rate_of_round(local: Local, round_: Array) -> Any:
    rate = local.learning_rate
    return rate(round_) if callable(rate) else rate
