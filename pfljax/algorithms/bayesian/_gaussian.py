"""A Gaussian over the leaves of a model with independent coordinates.

    Gaussian   N(mean, std^2), where std = softplus(spread) is positive for any spread
    Natural    precision = 1 / std^2, and shift = precision mean: sums and differences
               of these are products and quotients of densities

Running statistics (`core.statistics`) are not random. They are in `mean` and `shift` as
they are, and `spread` and `precision` have None in their place.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from pfljax.core import statistics, tree
from pfljax.core.kinds import KINDS
from pfljax.core.types import Array, Batch, Key, Params, Task

LEAST = 1e-18  # of std: float32 can hold the squares of std and of 1 / std


class Gaussian(NamedTuple):
    """Independent normal coordinates, in the parameters that an optimizer steps."""

    mean: Params
    spread: Params


class Natural(NamedTuple):
    """A Gaussian, or a factor of one, in natural parameters."""

    shift: Params
    precision: Params


class Ensemble(NamedTuple):
    """A model of which some leaves are drawn several times."""

    fixed: Any  # the other leaves, None where a leaf is drawn
    drawn: Any  # leaves [S, ...], None where a leaf is fixed


def around(mean: Params, std: Any) -> Gaussian:
    """N(mean, std^2), of one positive std f32[] for all coordinates."""
    return Gaussian(mean, tree.full(tree.parameters(mean), _inverse_softplus(std)))


def map_leaves(function: Callable[[Params], Params], q: Gaussian) -> Gaussian:
    """The function of the means, and of the spreads."""
    return Gaussian(function(q.mean), function(q.spread))


def std(q: Gaussian) -> Params:
    """The standard deviation of each coordinate."""

    def positive(leaf: Array) -> Array:
        return jnp.maximum(jax.nn.softplus(leaf), LEAST)

    return jax.tree.map(positive, q.spread)


def _inverse_softplus(std: Any) -> Any:
    """The number whose softplus is std: log(exp(std) - 1), without an overflow."""
    # For a float on the host: programs would round it differently, and for two equal
    # Gaussians Adam would take whole steps along a gradient that is not quite 0.
    numpy = np if isinstance(std, float) else jnp
    return std + numpy.log(-numpy.expm1(-std))


def noise(key: Key, like: Params, count: int) -> Params:
    """Standard normal numbers, leaves [count, ...] of the shapes of `like`."""
    # One vector for all leaves: one draw for each leaf would take long to compile.
    flat, unravel = ravel_pytree(like)
    drawn = jax.random.normal(key, (count, flat.size), flat.dtype)
    return jax.vmap(unravel)(drawn)


def draws(q: Gaussian, key: Key, count: int) -> Params:
    """`count` draws mean + std noise, stacked; gradients reach mean and spread."""
    fixed, random = tree.split(q.mean, statistics.mask(q.mean))

    def move(mean: Array, deviation: Array, unit: Array) -> Array:
        return mean + deviation * unit

    def repeat(leaf: Array) -> Array:
        # Each draw gives a statistic its whole change as a gradient: the sum over the
        # draws has to be their mean.
        still = jax.lax.stop_gradient(leaf)
        shared = still + (leaf - still) / count
        return jnp.broadcast_to(shared, (count, *leaf.shape))

    drawn = jax.tree.map(move, random, std(q), noise(key, random, count))
    return tree.merge(drawn, jax.tree.map(repeat, fixed))


def expectation(
    value: Callable[[Params], Array],
    q: Gaussian,
    key: Key,
    count: int,
) -> Array:
    """The mean of `value` over `count` draws, whose gradient is reparametrised."""
    # With `axis_size`: a model may have no random leaf.
    values = jax.vmap(value, axis_size=count)(draws(q, key, count))
    return jnp.mean(values, 0)


def kl(q: Gaussian, p: Gaussian) -> Array:
    """KL(q || p) = sum log(s_p / s_q) + (s_q^2 + (m_q - m_p)^2) / (2 s_p^2) - 1/2."""

    def on_leaves(mean: Array, std: Array, center: Array, scale: Array) -> Array:
        ratio = std / scale
        away = (mean - center) / scale
        # The logarithm of the ratio, not of its square, which could overflow.
        return jnp.sum((ratio**2 + away**2 - 1) / 2 - jnp.log(ratio))

    mean = tree.parameters(q.mean)
    center = tree.parameters(p.mean)
    by_leaf = jax.tree.map(on_leaves, mean, std(q), center, std(p))
    # The 0 is there for models without random leaves.
    terms = [jnp.float32(0), *jax.tree.leaves(by_leaf)]
    return jnp.sum(jnp.stack(terms))


def size(q: Gaussian) -> int:
    """The number of random coordinates."""
    return sum(leaf.size for leaf in jax.tree.leaves(q.spread))


def natural(q: Gaussian, least: Params | None = None) -> Natural:
    """The natural parameters of a Gaussian, with precisions of at least `least`."""

    def inverse_square(deviation: Array) -> Array:
        return deviation**-2

    precision = jax.tree.map(inverse_square, std(q))
    if least is not None:
        precision = jax.tree.map(jnp.maximum, precision, least)
    fixed, random = tree.split(q.mean, statistics.mask(q.mean))
    shift = tree.multiply(precision, random)
    return Natural(tree.merge(shift, fixed), precision)


def limit_precision(factor: Natural, least: Any) -> Natural:
    """The factor with precisions of at least `least`, f32[].

    Sums and differences of factors may be no density if a channel has added noise.
    """

    def on_leaf(precision: Array) -> Array:
        return jnp.maximum(precision, least)

    return factor._replace(precision=jax.tree.map(on_leaf, factor.precision))


def gaussian(factor: Natural) -> Gaussian:
    """The Gaussian with these natural parameters, of positive precision."""
    fixed, shift = tree.split(factor.shift, statistics.mask(factor.shift))

    def on_leaf(precision: Array) -> Array:
        return _inverse_softplus(precision**-0.5)

    mean = jax.tree.map(jnp.divide, shift, factor.precision)
    spread = jax.tree.map(on_leaf, factor.precision)
    return Gaussian(tree.merge(mean, fixed), spread)


def predictive(
    q: Gaussian,
    fixed: Any,
    key: Key,
    count: int,
) -> Any:
    """The model at the mean, or with `count` > 0 an ensemble of that many draws.

    `fixed` has the leaves that are not in q, and None at those that are.
    """
    if count == 0:
        return tree.merge(fixed, q.mean)
    return Ensemble(fixed=fixed, drawn=draws(q, key, count))


def predicting(
    task: Task, predict: Callable[[Any, Batch], Array]
) -> Callable[[Any, Batch], Array]:
    """`predict` for a model; for an ensemble, the mean of its models' predictions."""

    def predict_either(model: Any, batch: Batch) -> Array:
        if not isinstance(model, Ensemble):
            return predict(model, batch)

        def predict_drawn(drawn: Any) -> Array:
            return predict(tree.merge(model.fixed, drawn), batch)

        outputs = jax.vmap(predict_drawn)(model.drawn)
        return KINDS[task.kind].average(outputs)

    return predict_either
