"""The record of a selection: the clients of a round, and their work.

Cohorts depend on the run's seed, the round and what the selection has learned. Those
that learn nothing give two methods of one seed the same cohorts, stragglers and
minibatches.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core.types import Array, ClientData, Cohort, Key, Metrics, Params


def full_work(state: Any, key: Key, ids: Array, steps: Array) -> tuple[Array, Array]:
    """Lets every client do all the work and report."""
    return steps, jnp.ones(steps.shape, jnp.float32)


def nothing() -> Any:
    """Returns the state of a selection that learns nothing."""
    return ()


def keep_state(state: Any, cohort: Cohort, metrics: Metrics) -> Any:
    """Returns the state as it was."""
    return state


class Selection(NamedTuple):
    """How a cohort of fixed size is drawn."""

    cohort: int  # M
    choose: Callable[[Any, Key], Array]  # (state, key) -> i32[M], C for an empty place
    work: Callable[  # (state, key, ids, steps) -> budgets i32[M], mask f32[M]
        [Any, Key, Array, Array], tuple[Array, Array]
    ] = full_work
    init: Callable[[], Any] = nothing  # the state before the first round
    # Metrics f32[M] of training, and "turn_seconds" where there is a clock.
    update: Callable[[Any, Cohort, Metrics], Any] = keep_state
    # (state, models [M], model, cohort) -> state, after `update`, from the model that
    # each member sent and the server's new one. It needs stacked uploads, and a method
    # that sends models.
    observe: Callable[[Any, Params, Params, Cohort], Any] | None = None
    # (state, model, train, key) -> state, after all of these: clients evaluate the
    # server's new model on their training examples, before the next cohort is chosen.
    # The key is that of `choose` in the next round. The method must have such a model.
    evaluate: Callable[[Any, Params, ClientData, Key], Any] | None = None
    replacement: bool = False  # a client may be drawn twice; all weigh the same
    full: bool = False  # no place is ever empty


def learns(selection: Selection) -> bool:
    """Returns whether cohorts depend on the results of earlier rounds."""
    state = jax.eval_shape(selection.init)
    return bool(jax.tree.leaves(state))


def first(selection: Selection, count: Array, num_clients: int) -> Selection:
    """Empties all but the first `count` places, i32[], which may be traced.

    The result for `uniform` is the cohort of that size.
    """
    # The shapes stay those of the whole cohort: one program runs every size.
    taken = jnp.arange(selection.cohort) < count

    def work(state: Any, key: Key, ids: Array, steps: Array) -> tuple[Array, Array]:
        steps, mask = selection.work(state, key, ids, steps)
        return jnp.where(taken, steps, 0), jnp.where(taken, mask, 0.0)

    def choose(state: Any, key: Key) -> Array:
        ids = selection.choose(state, key)
        return jnp.where(taken, ids, num_clients)

    return selection._replace(choose=choose, work=work, full=False)
