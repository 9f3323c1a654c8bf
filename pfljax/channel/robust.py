"""Robust reducers, which limit what malicious uploads can change.

Most of them replace every upload by one robust value, which is then whatever mean the
method takes. None weighs clients by their number of examples, since an attacker may
claim any number. A reducer is a function of the uploads, stacked over the M clients of
a cohort, and a weight f32[M], which is 0 for clients that did not report.
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
from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, Count, Positive, Range
from pfljax.core.types import Array, Cohort, Key, Origin, Upload

Reducer = Callable[[Any, Array], Any]
Trimmed = Annotated[  # trimming half of the values at either end would leave none
    float, Range(lambda value: 0 <= value < 0.5, "0 <= trim < 0.5")
]


def robust(name: str, reducer: Reducer) -> Channel:
    """A channel that replaces each upload by `reducer` of the cohort's uploads.

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
      trim: share of the values that are left out at either end.
    """

    def reducer(uploads: Any, weight: Array) -> Any:
        present = weight > 0
        count = present.sum()
        cut = jnp.floor(trim * count)
        rank = jnp.arange(weight.shape[0])
        inside = (rank >= cut) & (rank < count - cut)

        def reduce(leaf: Array) -> Array:
            # Clients that did not report sort last, to ranks that are cut off.
            reported = jnp.where(tree.column(present, leaf), leaf, jnp.inf)
            in_order = jnp.sort(reported, axis=0)
            total = jnp.where(tree.column(inside, leaf), in_order, 0).sum(0)
            return total / jnp.maximum(inside.sum(), 1)

        return jax.tree.map(reduce, uploads)

    return robust("trimmed_mean", reducer)


@component
def krum(*, byzantine: Count = 1, chosen: AtLeastOne = 1) -> Channel:
    """The (multi-)Krum mean of the uploads (Blanchard et al., NeurIPS 2017).

    It takes all reports if there are fewer than `chosen`, and the first of the cohort
    if there are at most byzantine + 2.

    Args:
      byzantine: number of malicious reports that it withstands.
      chosen: number of reports whose mean is taken; 1 is Krum.
    """

    def reducer(uploads: Any, weight: Array) -> Any:
        present = weight > 0
        count = len(weight)
        leaves = jax.tree.leaves(uploads)
        if not leaves:  # a method that sends nothing
            return uploads
        flat = jnp.concatenate([leaf.reshape(count, -1) for leaf in leaves], 1)
        # From differences, since |a|^2 + |b|^2 - 2ab cancels if uploads are close.
        difference = flat[:, None] - flat[None]
        square = jnp.sum(difference**2, -1)
        other = present[None] & ~jnp.eye(count, dtype=bool)
        nearest_first = jnp.sort(jnp.where(other, square, jnp.inf), axis=1)
        counted = jnp.arange(count) < present.sum() - byzantine - 2
        # With `where`, since absent clients are infinitely far and 0 * inf is NaN.
        score = jnp.where(counted, nearest_first, 0).sum(1)
        score = jnp.where(present, score, jnp.inf)
        # Absent clients come last; their weight is 0 if fewer than `chosen` reported.
        best = jnp.argsort(score)[:chosen]
        weight = present[best].astype(jnp.float32)
        return aggregation.mean(tree.take(uploads, best), weight)

    return robust("krum", reducer)


@component
def geometric_median(
    *, iterations: AtLeastOne = 8, smoothing: Positive = 1e-6
) -> Channel:
    """The geometric median of the uploads, computed by smoothed Weiszfeld steps.

    RFA: Pillutla et al., IEEE TSP 2022, https://arxiv.org/abs/1912.13445, Algorithm 2:

        w_i = weight_i / max(smoothing, |x_i - z|);   z <- sum_i w_i x_i / sum_i w_i

    Args:
      iterations: number of steps.
      smoothing: least distance, which avoids a division by 0.
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

    v <- v + mean_i (x_i - v) min(1, radius / |x_i - v|), starting at the last v.
    Karimireddy et al., ICML 2021, https://arxiv.org/abs/2012.10333, Algorithm 2. With a
    large `radius` it is the mean.

    Args:
      radius: largest distance from v; a large radius gives the mean.
      iterations: number of these steps in a round.
    """

    def init(start: Start) -> Any:
        if start.upload is None:
            raise ValueError(
                "centred_clip needs the shapes of uploads; make its channel by "
                "`pfljax.channel.fit`"
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
    """Refuses uploads whose shapes differ from those of the state."""
    expected = [leaf.shape for leaf in jax.tree.leaves(centre)]
    shapes = [leaf.shape for leaf in jax.tree.leaves(change)]
    if shapes != expected:
        raise ValueError(
            "centred_clip keeps one change for all clients, but the uploads of this "
            "method have several shapes; choose another reducer, such as "
            "geometric_median"
        )


@component
def norm_clip(*, norm: Positive | None = None) -> Channel:
    """Clips changes to `norm` at the server, or to the median of their norms.

    Unlike `clip`, it acts after the attackers, who need not clip. A large `norm`
    changes nothing.

    Args:
      norm: largest length of a change; None for the median of their lengths.
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
        # An upload that is not longer than the limit keeps its bits.
        clipped = tree.where_each(length > limit, shorter, values)
        return tree.merge(clipped, others), state

    return NONE._replace(send=with_origin, receive=receive, stage="reduce")


def coordinate_median(uploads: Any, weight: Array) -> Any:
    """The median of each coordinate over the clients that reported."""
    present = weight > 0

    def reduce(leaf: Array) -> Array:
        # The number of clients that reported is traced, so NaN marks the others.
        reported = jnp.where(tree.column(present, leaf), leaf, jnp.nan)
        return jnp.nanmedian(reported, axis=0)

    return jax.tree.map(reduce, uploads)


def shorten(changes: Any, norm: Any) -> Any:
    """Scales each change of [M, ...] to at most this length."""
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
