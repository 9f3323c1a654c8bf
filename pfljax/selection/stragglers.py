"""Clients that do a part of their work, or none."""

import jax
import jax.numpy as jnp

from pfljax.core.keys import derive
from pfljax.core.types import Array, Key
from pfljax.selection.base import Selection


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
