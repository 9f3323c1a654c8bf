"""The prediction of each example, where `metrics` has sums over examples."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from pfljax.core.minibatches import in_batches, take_batch
from pfljax.core.types import Array, Batch, ClientData
from pfljax.evaluation.passes import rows_per_pass

NOTHING = -1  # the prediction of logits that are not finite, which hit nothing


def predict_examples(
    predict: Callable[[Batch], Array], data: ClientData, batch_size: int, most: int
) -> dict[str, Array]:
    """The "prediction" i32[most] and "probability" f32[most] of a client's examples.

    Batches are those of `metrics.score`. Values behind the last example are padding.
    """
    at_once = rows_per_pass(batch_size)

    def predict_pass(index: Array) -> dict[str, Array]:
        batches = in_batches(take_batch(data, index, at_once), batch_size)
        logits = jax.vmap(predict)(batches)
        log_p = jax.nn.log_softmax(logits.astype(jnp.float32))
        best = log_p.max(-1)
        prediction = jnp.argmax(logits, -1).astype(jnp.int32)
        return {
            "prediction": jnp.where(jnp.isfinite(best), prediction, NOTHING),
            "probability": jnp.exp(best),
        }

    passes = jnp.arange(-(-most // at_once))
    by_pass = jax.lax.map(predict_pass, passes)
    return {name: leaf.reshape(-1)[:most] for name, leaf in by_pass.items()}
