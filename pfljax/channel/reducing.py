"""Robust reducers: what the server makes of uploads, some of which may be attacks.

Those of one value put it in the place of every upload, so that whatever mean the method
takes is that value. None goes by rows: they are a claim of the client, which may be an
attacker.
"""

from typing import Any

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
from pfljax.core import aggregation, centres, tree
from pfljax.core.types import Cohort, Key, Origin, Upload
from pfljax.registry import AtLeastOne, Count, Positive, checked


def robust(name: str, reducer: aggregation.Reducer) -> Channel:
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
        value = reducer(uploads, aggregation.reported(cohort))
        return aggregation.repeated(value, uploads), state

    return NONE._replace(send=send, receive=receive, stage="reduce", one_for_all=True)


def median() -> Channel:
    """The median of each coordinate, for each upload (Yin et al., ICML 2018)."""
    return robust("median", aggregation.median)


@checked
def trimmed_mean(*, trim: aggregation.Trimmed = 0.1) -> Channel:
    """The trimmed mean in the place of each upload (Yin et al., ICML 2018).

    Args:
      trim: share of the values left out at either end.
    """
    return robust("trimmed_mean", aggregation.trimmed_mean(trim))


@checked
def krum(*, byzantine: Count = 1, chosen: AtLeastOne = 1) -> Channel:
    """The (multi-)Krum mean in the place of each (Blanchard et al., NeurIPS 2017).

    Of fewer reports than `chosen`, all; of byzantine + 2 or fewer, those asked first.

    Args:
      byzantine: malicious reports that it withstands.
      chosen: reports whose mean is taken; 1 is Krum.
    """
    return robust("krum", aggregation.krum(byzantine, chosen))


@checked
def geometric_median(
    *, iterations: AtLeastOne = 8, smoothing: Positive = 1e-6
) -> Channel:
    """The geometric median in the place of each (RFA, Pillutla et al., TSP 2022).

    Args:
      iterations: of Weiszfeld's algorithm.
      smoothing: least distance, which keeps it from dividing by 0.
    """
    reducer = centres.geometric_median(iterations, smoothing)
    return robust("geometric_median", reducer)


@checked
def centred_clip(*, radius: Positive = 10.0, iterations: AtLeastOne = 1) -> Channel:
    """The mean of changes, each clipped towards the one of the round before.

    Karimireddy et al., ICML 2021. A large `radius` is the mean.

    Args:
      radius: to which changes are clipped; large is the mean.
      iterations: times that they are clipped towards the mean of before.
    """

    def init(start: Start) -> Any:
        if start.upload is None:
            raise ValueError(
                "centred_clip keeps a change, whose shape it is not told; make its "
                "channel by `pfljax.channel.fitted`"
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
        weight = aggregation.reported(cohort)
        changes = tree.sub(values, start)
        moved = centres.clipped_towards(centre, changes, weight, radius, iterations)
        moved = tree.where(weight.sum() > 0, moved, centre)
        ours = tree.add(start, aggregation.repeated(moved, changes))
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


@checked
def norm_clip(*, norm: Positive | None = None) -> Channel:
    """Scales changes to a length of at most `norm` at the server; None: their median.

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
        length = centres.lengths(changes)
        limit = norm
        if limit is None:
            present = aggregation.reported(cohort) > 0
            limit = jnp.nanmedian(jnp.where(present, length, jnp.nan)) + 1e-10
        shorter = tree.add(start, centres.shortened(changes, limit))
        # Not above the limit: there an upload keeps its bits.
        clipped = tree.where_rows(length > limit, shorter, values)
        return tree.merge(clipped, others), state

    return NONE._replace(send=with_origin, receive=receive, stage="reduce")
