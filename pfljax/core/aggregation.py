"""One value of many uploads, stacked over M, each with a weight f32[M].

The weight 0 means absent. Robust values are in `pfljax.channel.robust`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pfljax import registry
from pfljax.core import tree
from pfljax.core.types import Array, Cohort


@dataclasses.dataclass(frozen=True)
class Averaging:
    """An `aggregate` whose new server is the weighted mean of the uploads.

    A record, so that the engine knows it, and may sum the uploads as they come where
    all of them would fill the memory (`pfljax.engine.summing`).
    """

    weight_of: Callable[[Cohort], Array]  # f32[M], 0 for the absent

    def __call__(self, server: Any, uploads: Any, cohort: Cohort) -> Any:
        """The mean of the stacked uploads."""
        return mean(uploads, self.weight_of(cohort))


def averaging(weighting: str) -> Averaging:
    """An `aggregate` whose new server is the mean of the uploads.

    Args:
      weighting: what a client counts for, "rows" (`by_examples`) or "uniform".

    Raises:
      ValueError: for another weighting.
    """
    known = {"examples": by_examples, "uniform": uniform}
    registry.require_known("weighting", weighting, known)
    return Averaging(known[weighting])


def by_examples(cohort: Cohort) -> Array:
    """The rows of each client that reported, f32[M]."""
    return cohort.weight * cohort.mask


def uniform(cohort: Cohort) -> Array:
    """1 for each client that reported, f32[M]."""
    # Drawn with replacement (`selection.by_size`), a client counts for every draw.
    return cohort.draws * cohort.mask


def senders(cohort: Cohort) -> dict[int, Cohort]:
    """Who sent each stack of uploads, by the number of their architecture.

    For methods with an `Algorithm.architecture`. A slot that nobody fills has the id C,
    and weight, mask and draws 0.
    """

    def those_at(places: Array) -> Cohort:
        def take(leaf: Array, none: Any) -> Array:
            return leaf.at[places].get(mode="fill", fill_value=none)

        return cohort._replace(
            ids=take(cohort.ids, cohort.num_clients),
            weight=take(cohort.weight, 0),
            mask=take(cohort.mask, 0),
            draws=take(cohort.draws, 0),
            places=(),
        )

    return {number: those_at(places) for number, places in cohort.places.items()}


def gather(uploads: Any, cohort: Cohort) -> tuple[Any, Cohort]:
    """(uploads, the cohort) by client id, the absent last, whoever they are.

    For a server that computes on with all.

    Of several devices each gets the uploads of all by this gather, once: what follows
    would be exchanged between devices every time.
    """
    order = jnp.argsort(present_ids(cohort))
    return _in_order(uploads, cohort, order)


def largest_first(uploads: Any, cohort: Cohort) -> tuple[Any, Cohort]:
    """As `gather`, but by the rows of the clients; by id where these are equal."""
    order = jnp.lexsort((present_ids(cohort), -by_examples(cohort)))
    return _in_order(uploads, cohort, order)


def present_ids(cohort: Cohort) -> Array:
    """The id of each client that reported, i32[M]; C of the absent."""
    return jnp.where(cohort.mask > 0, cohort.ids, cohort.num_clients)


def record(stacked: Any, values: Any, cohort: Cohort) -> Any:
    """The states of all clients [C, ...], with new values of those that reported."""
    return tree.put(stacked, present_ids(cohort), values)


def _in_order(uploads: Any, cohort: Cohort, order: Array) -> tuple[Any, Cohort]:
    """(uploads, the cohort) in this order of the slots."""
    ids, weight, mask, draws = tree.take(
        (cohort.ids, cohort.weight, cohort.mask, cohort.draws), order
    )
    in_order = cohort._replace(ids=ids, weight=weight, mask=mask, draws=draws)
    return tree.take(uploads, order), in_order


def mean(uploads: Any, weight: Array) -> Any:
    """Weighted mean, summed in the cohort's order."""
    return over_weight(weighted_sum(uploads, weight), weight)


def weighted_sum(uploads: Any, weight: Array) -> Any:
    """The sum of the uploads times their weights, in the cohort's order."""

    def on_leaf(leaf: Array) -> Array:
        # An accelerator's default would round weights and uploads to a few bits.
        return jnp.tensordot(weight, leaf, 1, precision="highest")

    return jax.tree.map(on_leaf, uploads)


def over_weight(weighted_sum: Any, weight: Array) -> Any:
    """The mean, of a sum of uploads times their weights f32[M].

    Divided last, so that over several devices all sums travel in one all-reduce.
    """
    # Where nobody reported, 0 and not NaN.
    total = jnp.maximum(weight.sum(), jnp.finfo(jnp.float32).tiny)
    return jax.tree.map(lambda leaf: leaf / total, weighted_sum)


def repeat(value: Any, uploads: Any) -> Any:
    """The value in the place of each of the stacked uploads."""

    def on_leaf(leaf: Array, stacked: Array) -> Array:
        return jnp.broadcast_to(leaf.astype(stacked.dtype), stacked.shape)

    return jax.tree.map(on_leaf, value, uploads)


def counted_mean(
    uploads: Any,
    counts: Any,
    default: Any,
) -> Any:
    """Mean of each element over the uploads that hold it; nobody's keeps `default`.

    `counts` is shaped as `uploads` and holds weights, 0 where an upload lacks the
    element.
    """

    def on_leaf(
        leaf: Array,
        count: Array,
        old: Array,
    ) -> Array:
        total = count.sum(0)
        weighted = (leaf * count).sum(0)
        # `where` computes both: neither may divide by 0.
        means = weighted / jnp.maximum(total, 1e-12)
        return jnp.where(total > 0, means, old)

    return jax.tree.map(on_leaf, uploads, counts, default)


def mean_by_class(rows: Array, counts: Array, weight: Array) -> Array:
    """Mean of rows f32[M, K, D], one a class, by what uploads have of it, f32[M, K].

    Of a class that nobody has, all of positive weight count alike.
    """
    uniform = mean(rows, weight)
    weighted = counts * _column(weight, counts)
    return counted_mean(rows, weighted[..., None], uniform)


def segment_mean(
    uploads: Any,
    member: Array,
    default: Any,
) -> Any:
    """Weighted mean by segment: `member` f32[M, K] holds the weight of m in segment k.

    Returns leaves [K, ...]; an empty segment keeps its row of `default`.
    """
    total = member.sum(0)

    def on_leaf(leaf: Array, old: Array) -> Array:
        sums = jnp.tensordot(member, leaf, axes=(0, 0), precision="highest")
        positive = jnp.maximum(total, 1e-12)
        means = sums / _column(positive, sums)
        filled = _column(total > 0, sums)
        return jnp.where(filled, means, old)

    return jax.tree.map(on_leaf, uploads, default)


def _column(vector: Array, like: Array) -> Array:
    """`vector` [M] shaped to broadcast against `like` [M, ...]."""
    ones = (1,) * (like.ndim - 1)
    return vector.reshape(vector.shape + ones)
