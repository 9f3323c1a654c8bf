"""Who takes part in a round, and with how much work.

A `Selection` depends on the run's seed and the round alone, never on the method: two
methods with one seed see the same cohorts, stragglers and minibatches.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from pfljax.core.types import Array, Key


class Selection(NamedTuple):
    """How a cohort of fixed size is drawn."""

    cohort: int  # M
    ids: Callable[[Key], Array]  # i32[M]
    work: Callable[[Key, Array], tuple[Array, Array]]  # budgets -> (budgets, mask) [M]
    replacement: bool = False  # a client may be drawn twice; all weigh the same


def full_work(key: Key, steps: Array) -> tuple[Array, Array]:
    """Everybody does all the work and reports."""
    return steps, jnp.ones(steps.shape, jnp.float32)


def first(selection: Selection, count: Array, num_clients: int) -> Selection:
    """The first `count` places of `selection`, i32[] and maybe traced; others empty.

    Of `uniform` this is the cohort of that size.
    """
    there = jnp.arange(selection.cohort) < count

    def work(key: Key, steps: Array) -> tuple[Array, Array]:
        steps, mask = selection.work(key, steps)
        return jnp.where(there, steps, 0), jnp.where(there, mask, 0.0)

    def ids(key: Key) -> Array:
        return jnp.where(there, selection.ids(key), num_clients)

    return selection._replace(ids=ids, work=work)
