"""The training losses and seconds of a cohort, as selections read them."""

import jax.numpy as jnp

from pfljax.core.aggregation import record
from pfljax.core.types import Array, Cohort, Metrics

TURN_SECONDS = "turn_seconds"  # among the metrics, where there is a clock
DIVERGED = 1e9  # replaces a loss that is no number


def losses(metrics: Metrics) -> Array:
    """Returns the training loss of each member, f32[M]; a large one if it diverged."""
    # Some comparisons would take NaN for the largest number, others for none.
    return jnp.nan_to_num(
        metrics["loss"], nan=DIVERGED, posinf=DIVERGED, neginf=-DIVERGED
    )


def record_losses(values: Array, cohort: Cohort, metrics: Metrics) -> Array:
    """Replaces the last losses f32[C] of the clients that reported."""
    return record(values, losses(metrics), cohort)
