"""What models predict of rows, row by row, where `metrics` has the sums over rows."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.minibatches import in_batches, rows
from pfljax.core.types import Array, Batch, ClientData
from pfljax.engine import Setting, chunked_vmap
from pfljax.evaluation.apart import models_of_clients
from pfljax.evaluation.passes import rows_per_pass
from pfljax.evaluation.views import View

NOTHING = -1  # the prediction of logits that are not finite, which hit nothing


def predicted(
    predict: Callable[[Batch], Array], data: ClientData, batch_size: int, most: int
) -> dict[str, Array]:
    """Of one client's rows, at most so many: "prediction" i32 and "probability" f32.

    Batches are those of `metrics.score`. What is behind the client's last row means
    nothing.
    """
    at_once = rows_per_pass(batch_size)
    offsets = jnp.arange(at_once)

    def of_pass(index: Array) -> dict[str, Array]:
        row = index * at_once + offsets
        existing = jnp.clip(row, 0, jnp.maximum(data.size - 1, 0))
        batch = rows(data, existing, row < data.size)
        logits = jax.vmap(predict)(in_batches(batch, batch_size))
        log_p = jax.nn.log_softmax(logits.astype(jnp.float32))
        best = log_p.max(-1)
        prediction = jnp.argmax(logits, -1).astype(jnp.int32)
        return {
            "prediction": jnp.where(jnp.isfinite(best), prediction, NOTHING),
            "probability": jnp.exp(best),
        }

    passes = jnp.arange(-(-most // at_once))
    by_pass = jax.lax.map(of_pass, passes)
    return {name: leaf.reshape(-1)[:most] for name, leaf in by_pass.items()}


def predictions_of_clients(
    setting: Setting, most: int, width: int | None = None
) -> Callable[..., dict[str, Array]]:
    """A function (state, clients, ids, train, test, public) -> `predicted` [n, most].

    By each client's personal model, on one device. The arguments are those of
    `programs.judge`. In two programs as evaluations are, whose bits it has so.
    """
    models = models_of_clients(setting, View("personal"), width)
    predict = setting.algorithm.predict
    batch_size = setting.local.batch_size

    @jax.jit
    def of_models(models: Any, test: ClientData) -> dict[str, Array]:
        def one(model: Any, offset: Array, size: Array) -> dict[str, Array]:
            data = ClientData(test.examples, offset, size)
            return predicted(partial(predict, model), data, batch_size, most)

        split = models, test.offset, test.size
        return chunked_vmap.over_clients(one, split, test.size, width)

    def run(
        state: Any, clients: Any, ids: Any, train: Any, test: Any, public: Any = None
    ) -> dict[str, Array]:
        return of_models(models(state, clients, ids, train, public), test)

    return run
