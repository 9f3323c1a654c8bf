"""What a method's clients are judged by, on the toy."""

from typing import Any

import jax
import jax.numpy as jnp

from pfljax import engine
from pfljax.conformance import context
from pfljax.conformance.script import CLIENTS
from pfljax.core.types import Batch, ClientData, Task
from pfljax.evaluation.views import View, model_of


def compile_judge(setting: engine.Setting, task: Task) -> Any:
    """Jitted (state, train) -> personal models, and their logits on the whole pool.

    Of all clients, and of one more that the run never saw, with the rows of client 0;
    leaves [CLIENTS + 1, ...].
    """
    algorithm = setting.algorithm
    model_for = model_of(setting, View())

    def run(state, train):
        params = task.init(state.key)
        unseen = engine.init_client(algorithm, params, jnp.int32(CLIENTS), state.key)

        def one(client_id, client, offset, size):
            rows = ClientData(train.examples, offset, size)
            personal = model_for(state, client_id, client, rows, context.public())
            # Where rows are poisoned, NaN must come of the model alone.
            batch = Batch.of_rows(jnp.nan_to_num(train.examples.x))
            return personal, algorithm.predict(personal, batch)

        ids = jnp.arange(CLIENTS + 1)
        owner = ids % CLIENTS
        clients = jax.tree.map(_with_row, state.clients, unseen)
        return jax.vmap(one)(ids, clients, train.offset[owner], train.size[owner])

    return jax.jit(run)


def _with_row(stacked, row):
    """The rows of `stacked`, and one more."""
    new_row = jnp.asarray(row)[None]
    return jnp.concatenate([stacked, new_row])
