"""Compiled programs that judge: metrics of every client's model on that client's rows.

Each is jitted once a run and called after any round. On several devices every device
judges its part of the clients.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.types import Array, ClientData, Task
from pfljax.engine import Setting, chunked_vmap, mesh
from pfljax.evaluation.metrics import GRID, from_totals, rows_per_pass, score, totals
from pfljax.evaluation.views import View, has_taken_part, model_of


def judge(
    setting: Setting,
    view: View,
    width: int | None = None,
) -> Callable[..., dict[str, Array]]:
    """A jitted function (state, clients, ids, train, test, public) -> metrics [n].

    `clients` holds the states of clients `ids` i32[n]; `train` and `test` their rows,
    offset and size stacked likewise; `public` the rows of the server, None for none.
    Metrics of a client without test rows are NaN.
    """
    model_for = model_of(setting, view)
    predict = setting.algorithm.predict
    batch_size = setting.local.batch_size

    def locally(same, pools, split):
        state, public = same
        train_pool, test_pool = pools
        *_, test_spans = split
        _, work = test_spans

        def one(client_id, client, train_span, test_span):
            # The model is made of training rows alone; test rows are read after it.
            train = rows_of(setting, train_pool, *train_span)
            model = model_for(state, client_id, client, train, public)
            test = rows_of(setting, test_pool, *test_span)
            return score(partial(predict, model), test, batch_size)

        return chunked_vmap.over_clients(one, split, work, width)

    def run(
        state,
        clients,
        ids,
        train,
        test,
        public=None,
    ):
        # Clients travel with `split`: here they would go to every device whole.
        same = state._replace(clients=()), public
        pools = train.examples, test.examples
        train_spans = train.offset, train.size
        test_spans = test.offset, test.size
        split = ids, clients, train_spans, test_spans
        return mesh.over_rows(setting.mesh, locally, same, pools, split, len(ids))

    return jax.jit(run)


def judge_server(setting: Setting, task: Task) -> Callable[..., dict[str, Array]]:
    """A jitted function (server, rows) -> metrics f32[U] of the server's model.

    `rows` has offset and size i32[U]. Few long spans are cut, so that every device of
    the mesh has its part.
    """
    server_model: Any = setting.algorithm.server_model
    if server_model is None:
        raise ValueError("this method keeps no server model; judge 'personal'")
    batch_size = setting.local.batch_size
    devices = setting.mesh.size if setting.mesh else 1

    def locally(server, pool, split):
        model = server_model(server)
        _, size = split

        def one(offset, size):
            part = rows_of(setting, pool, offset, size)
            return totals(partial(task.predict, model), part, batch_size)

        return chunked_vmap.over_clients(one, split, size, width=1)

    def run(server, rows):
        count = len(rows.size)
        # Where there are many spans, the devices are busy with whole ones.
        parts = 1 if count >= 4 * devices else devices
        split = cut(rows, parts, rows_per_pass(batch_size))
        by_part = mesh.over_rows(
            setting.mesh, locally, server, rows.examples, split, count * parts
        )

        def by_span(leaf: Array) -> Array:
            return leaf.reshape(count, parts, *leaf.shape[1:]).sum(1)

        return from_totals(jax.tree.map(by_span, by_part))

    return jax.jit(run)


def cut(
    rows: ClientData,
    parts: int,
    at_once: int,
) -> tuple[Array, Array]:
    """(offset, size) i32[U * parts] of each span's parts, in the order of its rows.

    All but the last are of whole passes of `at_once` rows, so that minibatches stay
    those of the uncut span; the last ones may be empty.
    """
    passes = -(-rows.size // (parts * at_once))
    length = (passes * at_once)[:, None]
    size = rows.size[:, None]
    start = jnp.minimum(jnp.arange(parts) * length, size)
    offset = rows.offset[:, None] + start
    return offset.ravel(), jnp.minimum(size - start, length).ravel()


def judge_path(
    setting: Setting,
    width: int | None = None,
) -> Callable[..., dict[str, Array]]:
    """Like `judge` for methods with endpoints: f32[len(ids), 11] over `GRID`.

    Both endpoints of a client that never took part are the server's, where the method
    judges newcomers by another model than its own.
    """
    algorithm = setting.algorithm
    endpoints = algorithm.endpoints
    if endpoints is None:
        raise ValueError("this method has no endpoints, so there is no path to judge")

    def score_at(t, a, b, data):
        model = tree.lerp(a, b, t)
        predict = partial(algorithm.predict, model)
        return score(predict, data, setting.local.batch_size)

    def locally(state, pool, split):
        *_, work = split

        def one(client_id, client, offset, size):
            a, b = endpoints(state.server, client)
            if algorithm.newcomer is not None:
                b = tree.where(has_taken_part(state, client_id), b, a)
            data = rows_of(setting, pool, offset, size)
            points = jnp.asarray(GRID)
            # One point after another: eleven models a client would fill the memory.
            return jax.lax.map(lambda t: score_at(t, a, b, data), points)

        return chunked_vmap.over_clients(one, split, work, width)

    def run(state, clients, ids, test):
        same = state._replace(clients=())
        split = ids, clients, test.offset, test.size
        pool = test.examples
        return mesh.over_rows(setting.mesh, locally, same, pool, split, len(ids))

    return jax.jit(run)


def rows_of(
    setting: Setting,
    pool: Any,
    offset: Array,
    size: Array,
) -> ClientData:
    """A client's rows in the pool of this device."""
    offset = mesh.inside(setting.mesh, offset, pool.y)
    return ClientData(pool, offset, size)
