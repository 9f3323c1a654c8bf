"""Who takes part in a round, and with how much work.

A `Selection` depends on the run's seed and the round alone, never on the method: two
methods with one seed see the same cohorts, stragglers and minibatches.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.data.shuffle import index_shuffle
from pfljax.local import derive
from pfljax.types import Array, Key


class Selection(NamedTuple):
    """How a cohort of fixed size is drawn."""

    cohort: int  # M
    ids: Callable[[Key], Array]  # i32[M]
    work: Callable[[Key, Array], tuple[Array, Array]]  # budgets -> (budgets, mask) [M]
    replacement: bool = False  # a client may be drawn twice; all weigh the same


def _full_work(key: Key, steps: Array) -> tuple[Array, Array]:
    """Everybody does all the work and reports."""
    return steps, jnp.ones(steps.shape, jnp.float32)


def uniform(cohort: int, num_clients: int) -> Selection:
    """`cohort` different clients, uniformly; O(cohort) work whatever `num_clients`."""
    if not 1 <= cohort <= num_clients:
        raise ValueError(
            f"the cohort is {cohort}, but {num_clients} clients can be chosen; "
            f"choose 1 <= cohort <= {num_clients}"
        )
    places = jnp.arange(cohort)
    return Selection(
        cohort, lambda key: index_shuffle(places, num_clients, key), _full_work
    )


def by_size(cohort: int, sizes: np.ndarray) -> Selection:
    """`cohort` clients with replacement, in proportion to their rows `sizes` [C].

    FedProx, Algorithm 2: uploads are averaged with one weight a draw, not by rows. A
    client drawn twice trains once and counts twice. O(cohort log num_clients) work.
    """
    if cohort < 1 or np.min(sizes) < 0 or np.sum(sizes) == 0:
        raise ValueError(
            f"expected cohort >= 1 and rows to choose by; got {cohort}, {sizes}"
        )
    ends = jnp.asarray(np.cumsum(sizes), jnp.int32)

    def ids(key: Key) -> Array:
        row = jax.random.randint(key, (cohort,), 0, ends[-1])
        return jnp.searchsorted(ends, row, side="right").astype(jnp.int32)

    return Selection(cohort, ids, _full_work, replacement=True)


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


def stragglers(
    selection: Selection, share: float, epochs: int | None, drop: bool = False
) -> Selection:
    """`selection` whose round(share M) stragglers do part of their work, or none.

    A straggler runs 1 to E - 1 whole epochs (1 to steps - 1 steps if E is 1 or None),
    uniformly; with `drop` its work is thrown away, as FedAvg does (FedProx, section
    5.2).
    """
    if not 0 <= share <= 1:
        raise ValueError(
            f"the share of stragglers is {share}; expected 0 <= share <= 1"
        )
    slow = jnp.arange(selection.cohort) < round(share * selection.cohort)

    def work(key: Key, steps: Array) -> tuple[Array, Array]:
        steps, mask = selection.work(derive(key, "work"), steps)
        slots = epochs if epochs and epochs > 1 else jnp.maximum(steps, 2)
        done = jax.random.randint(derive(key, "part"), steps.shape, 1, slots)
        late = jax.random.permutation(derive(key, "who"), slow)
        part = jnp.minimum(jnp.maximum(steps * done // slots, 1), steps)
        kept = jnp.where(late, 0.0, mask) if drop else mask
        return jnp.where(late, part, steps), kept

    return selection._replace(work=work)
