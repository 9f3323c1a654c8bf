"""Metrics that need all examples of a client at once: `--metrics auc macro_f1`.

Each is a function (outputs [N, ...], y [N, ...], mask f32[N]) -> f32[], of fixed shape.
Rows with mask 0 are padding. A metric of your own is such a function in a file. Less is
better for a name that ends in "loss" or "error" (`over_clients.is_greater_better`).
Definitions are those of scikit-learn.
"""

from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp

from pfljax.core import factories
from pfljax.core.components import Component
from pfljax.core.requirements import find as find_known
from pfljax.core.types import Array

TOP = 10  # places of a ranking that count
RELEVANT = 4.0  # the least rating of an item that a user likes

Compute = Callable[[Array, Array, Array], Array]


def balanced_accuracy(outputs: Array, y: Array, mask: Array) -> Array:
    """The mean recall of the classes that the client has."""
    hits, _, has = _confusions(outputs, y, mask)
    recall = hits / jnp.maximum(has, 1)
    return recall.sum() / _or_nan((has > 0).sum())


def macro_f1(outputs: Array, y: Array, mask: Array) -> Array:
    """The mean F1 of the classes that the client has, or that are predicted."""
    hits, said, has = _confusions(outputs, y, mask)
    f1 = 2 * hits / jnp.maximum(said + has, 1)
    return f1.sum() / _or_nan((said + has > 0).sum())


def auc(outputs: Array, y: Array, mask: Array) -> Array:
    """The area under the ROC curve of each class against the rest, as a mean.

    Over the classes that the client has; NaN for a client with a single class.
    """
    member = jax.nn.one_hot(y, outputs.shape[-1]) * mask[:, None]
    area = jax.vmap(_area, (1, 1, None))(jax.nn.softmax(outputs), member, mask)
    return jnp.nansum(area) / _or_nan(jnp.isfinite(area).sum())


def mean_average_precision(outputs: Array, y: Array, mask: Array) -> Array:
    """The mean over labels of the average precision; labels without a 1 are left out.

    Of equal scores, the one of the earlier example comes first.
    """
    precision = jax.vmap(_average_precision, (1, 1, None))(outputs, y, mask)
    return jnp.nansum(precision) / _or_nan(jnp.isfinite(precision).sum())


def r2(outputs: Array, y: Array, mask: Array) -> Array:
    """The coefficient of determination, as a mean over the targets that vary.

    NaN for a client whose examples all have the same targets.
    """
    counted = mask[:, None]
    center = (counted * y).sum(0) / _or_nan(mask.sum())
    spread = (counted * jnp.square(y - center)).sum(0)
    error = jnp.where(counted > 0, jnp.square(outputs - y), 0).sum(0)
    # Equal numbers have a spread, by rounding.
    greatest = jnp.where(counted > 0, y, -jnp.inf).max(0)
    varies = greatest > jnp.where(counted > 0, y, jnp.inf).min(0)
    each = jnp.where(varies, 1 - error / jnp.where(varies, spread, 1), 0)
    return each.sum() / _or_nan(varies.sum())


def hit_rate(outputs: Array, y: Array, mask: Array) -> Array:
    """The share of the ten items ranked highest that the client rates 4 or more.

    Over the ten, or over all items that it likes if these are fewer; NaN without any.
    """
    relevant = (y[:, 0] >= RELEVANT) * mask
    top = relevant[_ranking(outputs[:, 0], mask)][:TOP]
    return top.sum() / _or_nan(jnp.minimum(relevant.sum(), TOP))


def ndcg(outputs: Array, y: Array, mask: Array) -> Array:
    """The normalised discounted cumulative gain at 10; the gain is the rating."""
    gain = y[:, 0] * mask
    best = _discounted(jnp.sort(gain, descending=True))
    return _discounted(gain[_ranking(outputs[:, 0], mask)]) / _or_nan(best)


METRICS: dict[str, Compute] = {
    "balanced_accuracy": balanced_accuracy,
    "macro_f1": macro_f1,
    "auc": auc,
    "mean_average_precision": mean_average_precision,
    "r2": r2,
    "hit_rate": hit_rate,
    "ndcg": ndcg,
}
OF_KIND = {
    "classes": ("balanced_accuracy", "macro_f1", "auc"),
    "multilabel": ("mean_average_precision",),
    "regression": ("r2",),
    "tokens": (),
    "ratings": ("r2", "hit_rate", "ndcg"),
}


def _confusions(outputs: Array, y: Array, mask: Array) -> tuple[Array, Array, Array]:
    """Of each class [K]: examples that are right, predicted to be it, and of it."""
    classes = outputs.shape[-1]
    member = jax.nn.one_hot(y, classes) * mask[:, None]
    said = jax.nn.one_hot(outputs.argmax(-1), classes) * mask[:, None]
    return (member * said).sum(0), said.sum(0), member.sum(0)


def _area(score: Array, member: Array, mask: Array) -> Array:
    """The probability that a member has a greater score than others; ties are 1/2."""
    # Padding sorts behind everything, and has neither members nor others.
    score = jnp.where(mask > 0, score, jnp.inf)
    in_order = jnp.sort(score)
    others = (1 - member) * mask
    order = jnp.argsort(score)
    below = jnp.concatenate([jnp.zeros(1), jnp.cumsum(others[order])])
    less = below[jnp.searchsorted(in_order, score, side="left")]
    at_most = below[jnp.searchsorted(in_order, score, side="right")]
    pairs = member.sum() * others.sum()
    return (member * (less + at_most)).sum() / 2 / _or_nan(pairs)


def _average_precision(score: Array, y: Array, mask: Array) -> Array:
    relevant = (y * mask)[_ranking(score, mask)]
    precision = jnp.cumsum(relevant) / (1 + jnp.arange(len(score)))
    return (precision * relevant).sum() / _or_nan(relevant.sum())


def _ranking(score: Array, mask: Array) -> Array:
    """The rows from the highest score down; padding comes last."""
    return jnp.argsort(jnp.where(mask > 0, -score, jnp.inf))


def _discounted(gain: Array) -> Array:
    top = gain[:TOP]
    return (top / jnp.log2(2 + jnp.arange(len(top)))).sum()


def _or_nan(count: Array) -> Array:
    return jnp.where(count > 0, count, jnp.nan)


@cache
def find(choices: tuple[Component, ...], kind: str) -> dict[str, Compute]:
    """The metrics of these names for a kind of task, one's own by their short names.

    Raises:
      ValueError: a metric is unknown, or is not one of this kind.
    """
    found: dict[str, Compute] = {}
    for choice in choices:
        known = {name: METRICS[name] for name in OF_KIND[kind]}
        compute = factories.get("metrics", known, choice.name)
        if compute is None:
            compute = find_known(f"metric of the task {kind!r}", known, choice.name)
        found[choice.short_name] = partial(compute, **choice.options)
    return found
