"""An evaluation in two programs: which models are judged, and their metrics.

The first is of the method, and small. The second depends on the task alone: all methods
share it, and it is compiled once. The models lie in memory between the two.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.types import Array, ClientData, RunState, Task
from pfljax.engine import Setting, chunked_vmap, mesh
from pfljax.evaluation.metrics import from_totals, score, score_path, totals
from pfljax.evaluation.passes import rows_per_pass
from pfljax.evaluation.uncertainty import Foreign
from pfljax.evaluation.views import View, has_taken_part, model_of


def models_of_clients(
    setting: Setting,
    view: View,
    width: int | None = None,
) -> Callable[..., Any]:
    """A jitted function (state, clients, ids, train, public) -> their models, stacked.

    The arguments are those of `judge`. On several devices the models lie in blocks.
    """
    model_for = model_of(setting, view)
    grid = setting.mesh

    def locally(same, pool, split):
        state, public = same
        *_, size = split

        def one(client_id, client, offset, size):
            train = rows_of(grid, pool, offset, size)
            return model_for(state, client_id, client, train, public)

        return _in_order(one, split, size, width)

    def run(
        state,
        clients,
        ids,
        train,
        public=None,
    ):
        # Clients travel with `split`: here they would go to every device whole.
        same = state._replace(clients=()), public
        split = mesh.pad(grid, (ids, clients, train.offset, train.size), len(ids))
        over = mesh.over(grid, locally, mesh.WHOLE, mesh.data(grid), mesh.SPLIT)
        return over(same, train.examples, split)

    return jax.jit(run)


def ends_of_clients(
    setting: Setting,
    width: int | None = None,
) -> Callable[..., Any]:
    """A jitted function (state, clients, ids) -> the ends of each one's path, stacked.

    Of methods with endpoints; see `models_of_clients`.
    """
    ends = ends_of(setting)
    grid = setting.mesh

    def locally(state, split):
        client_ids, _ = split

        def one(client_id, client):
            return ends(state, client_id, client)

        return _in_order(one, split, jnp.ones_like(client_ids), width)

    def run(state, clients, ids):
        same = state._replace(clients=())
        split = mesh.pad(grid, (ids, clients), len(ids))
        return mesh.over(grid, locally, mesh.WHOLE, mesh.SPLIT)(same, split)

    return jax.jit(run)


def ends_of(setting: Setting) -> Callable[..., tuple[Any, Any]]:
    """(state, client_id, client) -> the two ends of the client's path.

    Both of a client that never took part are the server's, where the method judges
    newcomers by another model than its own.

    Raises:
      ValueError: the method has no endpoints.
    """
    algorithm = setting.algorithm
    endpoints = algorithm.endpoints
    if endpoints is None:
        raise ValueError("this method has no endpoints, so there is no path to judge")

    def ends(state: RunState, client_id: Array, client: Any) -> tuple[Any, Any]:
        a, b = endpoints(state.server, client)
        if algorithm.newcomer is not None:
            b = tree.where(has_taken_part(state, client_id), b, a)
        return a, b

    return ends


def judge_many(
    task: Task,
    batch_size: int,
    grid: mesh.Grid | None,
    width: int | None = None,
) -> Callable[..., dict[str, Array]]:
    """A jitted function (models, rows, foreign) -> metrics [n] of each on its rows.

    `models` are those of `models_of_clients`, `rows` has offset and size i32[n]; None
    stands for no rows of `foreign` classes.
    """

    def one(model, data, batch_size, foreign):
        predict = partial(task.predict, model)
        return score(predict, data, batch_size, foreign=foreign)

    return _judging(one, batch_size, grid, width)


def judge_between(
    task: Task,
    batch_size: int,
    grid: mesh.Grid | None,
    width: int | None = None,
) -> Callable[..., dict[str, Array]]:
    """Like `judge_many`, of the ends of `ends_of_clients`; see `score_path`."""
    return _judging(partial(score_path, task.predict), batch_size, grid, width)


def _judging(
    score_of: Callable[..., dict[str, Array]],
    batch_size: int,
    grid: mesh.Grid | None,
    width: int | None,
) -> Callable[..., dict[str, Array]]:
    """score_of(model, data, batch_size, foreign) over models and rows, jitted."""

    def locally(others, pool, split):
        *_, work, _ = split

        def one(model, offset, size, held):
            data = rows_of(grid, pool, offset, size)
            return score_of(model, data, batch_size, foreign_of(others, held))

        return _in_order(one, split, work, width)

    def run(models, rows, foreign=None):
        others, held = parts_of(foreign)
        split = models, rows.offset, rows.size, held
        count = len(rows.size)
        return mesh.over_rows(grid, locally, others, rows.examples, split, count)

    return jax.jit(run)


def judge_one(
    task: Task,
    batch_size: int,
    grid: mesh.Grid | None,
) -> Callable[..., dict[str, Array]]:
    """A jitted function (params, rows, foreign) -> metrics f32[U] of one model.

    Of no method. `rows` has offset and size i32[U]; None stands for no rows of
    `foreign` classes. Few long spans are cut, so that every device of the mesh has its
    part.
    """
    devices = grid.size if grid else 1

    def locally(same, pool, split):
        params, others = same
        _, work, _ = split

        def one(offset, size, held):
            data = rows_of(grid, pool, offset, size)
            predict = partial(task.predict, params)
            foreign = foreign_of(others, held)
            return totals(predict, data, batch_size, foreign=foreign)

        return chunked_vmap.over_clients(one, split, work, width=1)

    def run(params, rows, foreign=None):
        count = len(rows.size)
        others, held = parts_of(foreign)
        # Where there are many spans, the devices are busy with whole ones.
        parts = 1 if count >= 4 * devices else devices
        held = jax.tree.map(lambda leaf: jnp.repeat(leaf, parts, axis=0), held)
        split = *cut(rows, parts, rows_per_pass(batch_size)), held
        same = params, others
        by_part = mesh.over_rows(
            grid, locally, same, rows.examples, split, count * parts
        )

        def by_span(leaf: Array) -> Array:
            return leaf.reshape(count, parts, *leaf.shape[1:]).sum(1)

        return from_totals(jax.tree.map(by_span, by_part))

    return jax.jit(run)


def parts_of(foreign: Foreign | None) -> tuple[Any, Any]:
    """(what is the same for all clients, what each has its own); two () of None."""
    return ((), ()) if foreign is None else (foreign.examples, foreign.held)


def foreign_of(others: Any, held: Any) -> Foreign | None:
    """The `Foreign` of one client, of `parts_of`."""
    return Foreign(others, held) if others else None


def _in_order(
    f: Callable[..., Any],
    args: tuple,
    steps: Array,
    width: int | None,
) -> Any:
    """`chunked_vmap.over_clients`; one at a time they need no sorting, which copies."""
    if width == 1:
        return jax.lax.map(lambda of_client: f(*of_client), args)
    return chunked_vmap.over_clients(f, args, steps, width)


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


def rows_of(
    grid: mesh.Grid | None,
    pool: Any,
    offset: Array,
    size: Array,
) -> ClientData:
    """A client's rows in the pool of this device."""
    offset = mesh.inside(grid, offset, pool.y)
    return ClientData(pool, offset, size)
