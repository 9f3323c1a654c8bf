"""The record of a selection: who takes part in a round, and with how much work.

Cohorts depend on the run's seed, the round and what the selection has learned. Those
that learn nothing give two methods of one seed the same cohorts, stragglers and
minibatches.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core.types import Array, Cohort, Key, Metrics


def full_work(key: Key, steps: Array) -> tuple[Array, Array]:
    """Everybody does all the work and reports."""
    return steps, jnp.ones(steps.shape, jnp.float32)


def nothing() -> Any:
    """The state of a selection that learns nothing."""
    return ()


def learns_nothing(
    state: Any,
    cohort: Cohort,
    metrics: Metrics,
) -> Any:
    """The state as it was."""
    return state


class Selection(NamedTuple):
    """How a cohort of fixed size is drawn."""

    cohort: int  # M
    choose: Callable[[Any, Key], Array]  # (state, key) -> i32[M], C for an empty place
    work: Callable[[Key, Array], tuple[Array, Array]] = full_work  # -> budgets, mask
    init: Callable[[], Any] = nothing  # the state before the first round
    update: Callable[[Any, Cohort, Metrics], Any] = learns_nothing  # metrics f32[M]
    replacement: bool = False  # a client may be drawn twice; all weigh the same


def learns(selection: Selection) -> bool:
    """Whether cohorts depend on the results of earlier rounds."""
    state = jax.eval_shape(selection.init)
    return bool(jax.tree.leaves(state))


def first(
    selection: Selection,
    count: Array,
    num_clients: int,
) -> Selection:
    """The first `count` places of `selection`, i32[] and maybe traced; others empty.

    Of `uniform` this is the cohort of that size.
    """
    # The shapes stay those of the whole cohort: one program runs every size.
    taken = jnp.arange(selection.cohort) < count

    def work(key: Key, steps: Array) -> tuple[Array, Array]:
        steps, mask = selection.work(key, steps)
        steps_taken = jnp.where(taken, steps, 0)
        mask_taken = jnp.where(taken, mask, 0.0)
        return steps_taken, mask_taken

    def choose(state: Any, key: Key) -> Array:
        ids = selection.choose(state, key)
        return jnp.where(taken, ids, num_clients)

    return selection._replace(choose=choose, work=work)
