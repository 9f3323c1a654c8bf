"""The prediction of each example, where `metrics` has sums over examples."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from pfljax.core.minibatches import in_batches, take_batch
from pfljax.core.types import Array, Batch, ClientData
from pfljax.evaluation.passes import rows_per_pass

NOTHING = -1  # the prediction of logits that are not finite, which hit nothing


def predict_examples(
    predict: Callable[[Batch], Array],
    data: ClientData,
    batch_size: int,
    most: int,
    kind: str = "classes",
) -> dict[str, Array]:
    """The "prediction" [most, ...] of a client's examples, in the form of the targets.

    Those of classes, labels and tokens also have a "probability" of the same shape.
    Batches are those of `metrics.score`. Values behind the last example are padding.
    """
    at_once = rows_per_pass(batch_size)

    def predict_pass(index: Array) -> dict[str, Array]:
        batches = in_batches(take_batch(data, index, at_once), batch_size)
        return FORMS.get(kind, _keep)(jax.vmap(predict)(batches))

    passes = jnp.arange(-(-most // at_once))
    by_pass = jax.lax.map(predict_pass, passes)
    return {
        name: leaf.reshape(-1, *leaf.shape[3:])[:most] for name, leaf in by_pass.items()
    }


def _choose(logits: Array) -> dict[str, Array]:
    log_p = jax.nn.log_softmax(logits.astype(jnp.float32))
    best = log_p.max(-1)
    prediction = jnp.argmax(logits, -1).astype(jnp.int32)
    return {
        "prediction": jnp.where(jnp.isfinite(best), prediction, NOTHING),
        "probability": jnp.exp(best),
    }


def _decide(logits: Array) -> dict[str, Array]:
    return {
        "prediction": (logits > 0).astype(jnp.int32),
        "probability": jax.nn.sigmoid(logits.astype(jnp.float32)),
    }


def _keep(outputs: Array) -> dict[str, Array]:
    return {"prediction": outputs.astype(jnp.float32)}


FORMS = {"classes": _choose, "tokens": _choose, "multilabel": _decide}  # by kind
