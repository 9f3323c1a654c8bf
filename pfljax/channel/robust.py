"""Robust reducers: what the server makes of uploads, some of which may be attacks.

Those of one value put it in the place of every upload, so that whatever mean the method
takes is that value. None weighs clients by their examples: these are a claim of the
client, which may be an attacker. Values are functions of uploads stacked over M and a
weight f32[M], 0 for the absent.
"""

from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from pfljax.channel import origins
from pfljax.channel.base import (
    NONE,
    Channel,
    Sender,
    Sent,
    Start,
    change_shapes,
    refuse_mixed,
    with_origin,
)
from pfljax.core import aggregation, tree
from pfljax.core.types import Array, Cohort, Key, Origin, Upload
from pfljax.registry import AtLeastOne, Count, Positive, Range, component

Reducer = Callable[[Any, Array], Any]
Trimmed = Annotated[  # half of them at either end would leave nobody
    float, Range(lambda value: 0 <= value < 0.5, "0 <= trim < 0.5")
]


def robust(name: str, reducer: Reducer) -> Channel:
    """A channel that puts `reducer` of the cohort's uploads in the place of each.

    Its `send` raises a ValueError for uploads that have leaves without an origin.
    """

    def send(
        state: Any, sender: Sender, origin: Origin, upload: Upload, memory: Any
    ) -> Sent:
        refuse_mixed(name, origin, upload)
        return Sent(upload, memory)

    def receive(
        state: Any, key: Key, uploads: Upload, reports: Any, cohort: Cohort
    ) -> tuple[Upload, Any]:
        value = reducer(uploads, aggregation.uniform(cohort))
        return aggregation.repeat(value, uploads), state

    return NONE._replace(send=send, receive=receive, stage="reduce", one_for_all=True)


@component
def median() -> Channel:
    """The median of each coordinate of the uploads (Yin et al., ICML 2018)."""
    return robust("median", coordinate_median)


@component
def trimmed_mean(*, trim: Trimmed = 0.1) -> Channel:
    """The trimmed mean of each coordinate of the uploads (Yin et al., ICML 2018).

    Args:
      trim: share of the values left out at either end.
    """

    def reducer(uploads: Any, weight: Array) -> Any:
        present = weight > 0
        count = present.sum()
        cut = jnp.floor(trim * count)
        rank = jnp.arange(weight.shape[0])
        inside = (rank >= cut) & (rank < count - cut)

        def reduce(leaf: Array) -> Array:
            # The absent sort behind all others, to ranks that are cut off.
            reported = jnp.where(tree.column(present, leaf), leaf, jnp.inf)
            in_order = jnp.sort(reported, axis=0)
            total = jnp.where(tree.column(inside, leaf), in_order, 0).sum(0)
            return total / jnp.maximum(inside.sum(), 1)

        return jax.tree.map(reduce, uploads)

    return robust("trimmed_mean", reducer)


@component
def krum(*, byzantine: Count = 1, chosen: AtLeastOne = 1) -> Channel:
    """The (multi-)Krum mean of the uploads (Blanchard et al., NeurIPS 2017).

    Of fewer reports than `chosen`, all; of byzantine + 2 or fewer, those asked first.

    Args:
      byzantine: malicious reports that it withstands.
      chosen: reports whose mean is taken; 1 is Krum.
    """

    def reducer(uploads: Any, weight: Array) -> Any:
        present = weight > 0
        count = len(weight)
        leaves = jax.tree.leaves(uploads)
        if not leaves:  # a method that sends nothing
            return uploads
        flat = jnp.concatenate([leaf.reshape(count, -1) for leaf in leaves], 1)
        # By differences: |a|^2 + |b|^2 - 2ab cancels where uploads are alike.
        difference = flat[:, None] - flat[None]
        square = jnp.sum(difference**2, -1)
        other = present[None] & ~jnp.eye(count, dtype=bool)
        nearest_first = jnp.sort(jnp.where(other, square, jnp.inf), axis=1)
        counted = jnp.arange(count) < present.sum() - byzantine - 2
        # By `where`: the distance of the absent is infinite, and 0 * inf is NaN.
        score = jnp.where(counted, nearest_first, 0).sum(1)
        score = jnp.where(present, score, jnp.inf)
        # Those absent come last, and do not count where fewer than `chosen` reported.
        best = jnp.argsort(score)[:chosen]
        weight = present[best].astype(jnp.float32)
        return aggregation.mean(tree.take(uploads, best), weight)

    return robust("krum", reducer)


@component
def geometric_median(
    *, iterations: AtLeastOne = 8, smoothing: Positive = 1e-6
) -> Channel:
    """The geometric median of the uploads, by smoothed Weiszfeld steps.

    RFA: Pillutla et al., IEEE TSP 2022, https://arxiv.org/abs/1912.13445, Algorithm 2:

        w_i = weight_i / max(smoothing, |x_i - z|);   z <- sum_i w_i x_i / sum_i w_i

    Args:
      iterations: of Weiszfeld's algorithm.
      smoothing: least distance, which keeps it from dividing by 0.
    """

    def reducer(uploads: Any, weight: Array) -> Any:
        centre = aggregation.mean(uploads, weight)
        for _ in range(iterations):
            distance = lengths(_subtract(uploads, centre))
            near = weight / jnp.maximum(smoothing, distance)
            centre = aggregation.mean(uploads, near)
        return centre

    return robust("geometric_median", reducer)


@component
def centred_clip(*, radius: Positive = 10.0, iterations: AtLeastOne = 1) -> Channel:
    """The mean of changes that are clipped around the aggregate of the last round.

    v <- v + mean_i (x_i - v) min(1, radius / |x_i - v|), from the mean v of before.
    Karimireddy et al., ICML 2021, https://arxiv.org/abs/2012.10333, Algorithm 2. A
    large `radius` is the mean.

    Args:
      radius: to which changes are clipped; large is the mean.
      iterations: times that they are clipped towards the mean of before.
    """

    def init(start: Start) -> Any:
        if start.upload is None:
            raise ValueError(
                "centred_clip keeps a change, whose shape is unknown; make its "
                "channel by `pfljax.channel.fit`"
            )
        return tree.zeros(change_shapes(start.origin, start.upload))

    def send(
        state: Any, sender: Sender, origin: Origin, upload: Upload, memory: Any
    ) -> Sent:
        refuse_mixed("centred_clip", origin, upload)
        _check_shapes(state, change_shapes(origin, upload))
        return Sent(upload, memory, origin)

    def receive(
        centre: Any, key: Key, uploads: Upload, starts: Any, cohort: Cohort
    ) -> tuple[Upload, Any]:
        start, values, others = origins.parts(starts, uploads)
        weight = aggregation.uniform(cohort)
        changes = tree.sub(values, start)
        moved = centre
        for _ in range(iterations):
            apart = shorten(_subtract(changes, moved), radius)
            step = aggregation.mean(apart, weight)
            moved = tree.add(moved, step)
        moved = tree.where(weight.sum() > 0, moved, centre)
        ours = tree.add(start, aggregation.repeat(moved, changes))
        return tree.merge(ours, others), moved

    return NONE._replace(
        init=init,
        send=send,
        receive=receive,
        stage="reduce",
        one_for_all=True,
        shaped=True,
    )


def _check_shapes(centre: Any, change: Any) -> None:
    """Refuses uploads of other shapes than the first exchange of the first client."""
    kept = [leaf.shape for leaf in jax.tree.leaves(centre)]
    came = [leaf.shape for leaf in jax.tree.leaves(change)]
    if kept != came:
        raise ValueError(
            "centred_clip keeps one change for all, but uploads of this method differ "
            "in shape, by the client's model or within a round; choose another "
            "reducer, such as geometric_median"
        )


@component
def norm_clip(*, norm: Positive | None = None) -> Channel:
    """Clips changes to `norm` at the server; None is the median of their norms.

    Unlike `clip` it follows attackers, who need not clip. A large `norm` changes
    nothing.

    Args:
      norm: largest length of a change; None, their median.
    """

    def receive(
        state: Any, key: Key, uploads: Upload, starts: Any, cohort: Cohort
    ) -> tuple[Upload, Any]:
        start, values, others = origins.parts(starts, uploads)
        changes = tree.sub(values, start)
        length = lengths(changes)
        limit = norm
        if limit is None:
            present = aggregation.uniform(cohort) > 0
            limit = jnp.nanmedian(jnp.where(present, length, jnp.nan)) + 1e-10
        shorter = tree.add(start, shorten(changes, limit))
        # Not above the limit: there an upload keeps its bits.
        clipped = tree.where_each(length > limit, shorter, values)
        return tree.merge(clipped, others), state

    return NONE._replace(send=with_origin, receive=receive, stage="reduce")


def coordinate_median(uploads: Any, weight: Array) -> Any:
    """The median of each coordinate over those present."""
    present = weight > 0

    def reduce(leaf: Array) -> Array:
        # The number of those present is traced: shapes cannot leave the others out.
        reported = jnp.where(tree.column(present, leaf), leaf, jnp.nan)
        return jnp.nanmedian(reported, axis=0)

    return jax.tree.map(reduce, uploads)


def shorten(changes: Any, norm: Any) -> Any:
    """Each change of [M, ...], scaled to at most this length."""
    length = lengths(changes)
    factor = jnp.where(length > norm, norm / jnp.maximum(length, norm), 1)
    return jax.tree.map(lambda leaf: leaf * tree.column(factor, leaf), changes)


def lengths(stacked: Any) -> Array:
    """The L2 norm over all leaves of each upload, f32[M]."""
    squares = []
    for leaf in jax.tree.leaves(stacked):
        flat = leaf.reshape(len(leaf), -1)
        squares.append(jnp.square(flat).sum(1))
    return jnp.sqrt(sum(squares, jnp.float32(0)))


def _subtract(uploads: Any, centre: Any) -> Any:
    return jax.tree.map(lambda leaf, centre: leaf - centre, uploads, centre)
