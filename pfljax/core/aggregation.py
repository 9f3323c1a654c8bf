"""Means of uploads that are stacked over M, with weights f32[M].

The weight 0 means absent. Robust aggregation is in `pfljax.channel.robust`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core import requirements, tree
from pfljax.core.types import Array, Cohort


@dataclasses.dataclass(frozen=True)
class Averaging:
    """An `aggregate` that returns the weighted mean of the uploads as the new server.

    It is a class, not a function, so that the engine recognises it. Where the stacked
    uploads would take much memory, the engine sums them as they are made
    (`pfljax.engine.summing`).
    """

    weight_of: Callable[[Cohort], Array]  # f32[M], 0 for the absent

    def __call__(self, server: Any, uploads: Any, cohort: Cohort) -> Any:
        """The mean of the stacked uploads."""
        return mean(uploads, self.weight_of(cohort))


def averaging(weighting: str) -> Averaging:
    """An `aggregate` whose new server is the mean of the uploads.

    Args:
      weighting: the weight of a client: "examples" or "uniform".

    Raises:
      ValueError: for another weighting.
    """
    known = {"examples": by_examples, "uniform": uniform}
    requirements.require_known("weighting", weighting, known)
    return Averaging(known[weighting])


def by_examples(cohort: Cohort) -> Array:
    """The number of examples of each client that reported, f32[M]."""
    return cohort.weight * cohort.mask


def uniform(cohort: Cohort) -> Array:
    """1 for each client that reported, f32[M]."""
    # If drawn with replacement (`selection.by_size`), a client counts for each draw.
    return cohort.draws * cohort.mask


def senders(cohort: Cohort) -> dict[int, Cohort]:
    """The cohort of each stack of uploads, by the number of the architecture.

    For methods with an `Algorithm.architecture`. A stack has the uploads of the clients
    with one architecture, and `cohort.places` their positions in the cohort. An empty
    slot of a stack has the id C, and weight, mask and draws 0.
    """

    def cohort_at(places: Array) -> Cohort:
        def take(leaf: Array, none: Any) -> Array:
            return leaf.at[places].get(mode="fill", fill_value=none)

        return cohort._replace(
            ids=take(cohort.ids, cohort.num_clients),
            weight=take(cohort.weight, 0),
            mask=take(cohort.mask, 0),
            draws=take(cohort.draws, 0),
            places=(),
        )

    return {number: cohort_at(places) for number, places in cohort.places.items()}


def gather(uploads: Any, cohort: Cohort) -> tuple[Any, Cohort]:
    """(uploads, the cohort) in the order of client ids, with absent clients last.

    For a server that continues to compute with all uploads. Each of several devices
    gets all uploads by this gather, once; otherwise devices would communicate in each
    later step.
    """
    order = jnp.argsort(present_ids(cohort))
    return _in_order(uploads, cohort, order)


def largest_first(uploads: Any, cohort: Cohort) -> tuple[Any, Cohort]:
    """`gather` in the order of decreasing numbers of examples, and then of ids."""
    order = jnp.lexsort((present_ids(cohort), -by_examples(cohort)))
    return _in_order(uploads, cohort, order)


def present_ids(cohort: Cohort) -> Array:
    """The id of each client that reported, i32[M]; C for absent clients."""
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
    """The weighted mean, summed in the cohort's order."""
    return over_weight(weighted_sum(uploads, weight), weight)


def weighted_sum(uploads: Any, weight: Array) -> Any:
    """The sum of the uploads times their weights, in the cohort's order."""

    def on_leaf(leaf: Array) -> Array:
        # An accelerator's default would round weights and uploads to a few bits.
        return jnp.tensordot(weight, leaf, 1, precision="highest")

    return jax.tree.map(on_leaf, uploads)


def over_weight(weighted_sum: Any, weight: Array) -> Any:
    """The mean, from a sum of uploads times their weights f32[M].

    The division comes last, so that several devices need one all-reduce for all sums.
    """
    # If no client reported, the mean is 0 and not NaN.
    total = jnp.maximum(weight.sum(), jnp.finfo(jnp.float32).tiny)
    return jax.tree.map(lambda leaf: leaf / total, weighted_sum)


def repeat(value: Any, uploads: Any) -> Any:
    """The value in place of each of the stacked uploads."""

    def on_leaf(leaf: Array, stacked: Array) -> Array:
        return jnp.broadcast_to(leaf.astype(stacked.dtype), stacked.shape)

    return jax.tree.map(on_leaf, value, uploads)


def counted_mean(
    uploads: Any,
    counts: Any,
    default: Any,
) -> Any:
    """Mean of each element over the uploads that have it, or else its `default`.

    `counts` has weights in the shape of `uploads`, 0 where an upload lacks the element.
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


def mean_by_class(vectors: Array, counts: Array, weight: Array) -> Array:
    """Mean of the vectors f32[M, K, D] of each class, weighted by counts f32[M, K].

    For a class that no upload has, all uploads are weighted by `weight` alone.
    """
    uniform = mean(vectors, weight)
    weighted = counts * tree.column(weight, counts)
    return counted_mean(vectors, weighted[..., None], uniform)


def segment_mean(
    uploads: Any,
    member: Array,
    default: Any,
) -> Any:
    """Weighted mean by segment, where `member` f32[M, K] is the weight of m in k.

    Returns leaves [K, ...]; an empty segment keeps its entry of `default`.
    """
    total = member.sum(0)

    def on_leaf(leaf: Array, old: Array) -> Array:
        sums = jnp.tensordot(member, leaf, axes=(0, 0), precision="highest")
        positive = jnp.maximum(total, 1e-12)
        means = sums / tree.column(positive, sums)
        filled = tree.column(total > 0, sums)
        return jnp.where(filled, means, old)

    return jax.tree.map(on_leaf, uploads, default)
