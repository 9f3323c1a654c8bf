"""What the server learns of who took part in a round."""

import jax.numpy as jnp

from pfljax.core.types import Array, Cohort, Metrics

TURN_SECONDS = "turn_seconds"  # among the metrics, where there is a clock
DIVERGED = 1e9  # stands for a loss that is no number


def ids_of(cohort: Cohort) -> Array:
    """The clients that reported, i32[M]; C, past the end, for others."""
    return jnp.where(cohort.mask > 0, cohort.ids, cohort.num_clients)


def losses_of(metrics: Metrics) -> Array:
    """The training loss of each member, f32[M]; a large one where it has diverged."""
    # Some comparisons would take NaN for the largest number, others for none.
    return jnp.nan_to_num(
        metrics["loss"], nan=DIVERGED, posinf=DIVERGED, neginf=-DIVERGED
    )


def seconds_of(cohort: Cohort, metrics: Metrics) -> tuple[Array, Array] | None:
    """(ids i32[M], virtual seconds f32[M]) of a round; None without a clock.

    These are the seconds that the server waited for each, at most the deadline. For
    whom it did not wait the id is C, past the end.
    """
    if TURN_SECONDS not in metrics:
        return None
    waited = metrics[TURN_SECONDS]
    return jnp.where(waited > 0, cohort.ids, cohort.num_clients), waited


def kept_losses(losses: Array, cohort: Cohort, metrics: Metrics) -> Array:
    """The last known losses of all clients, f32[C], with those of who reported."""
    return losses.at[ids_of(cohort)].set(losses_of(metrics), mode="drop")
