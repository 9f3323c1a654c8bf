"""Compiled evaluations: metrics of every client's model on that client's examples.

A run compiles two programs: a small one that makes the clients' models, and one that
scores them. The second depends on the task alone, so that all methods share it; the
models lie in memory between the two. A method that does not predict as the task does,
and a sweep, have both in one program. With several devices, every device evaluates its
part of the clients.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.kinds import CLASSES, Scoring
from pfljax.core.types import Array, ClientData, Task
from pfljax.engine import Setting, chunked_vmap, mesh
from pfljax.evaluation.metrics import (
    from_totals,
    score,
    score_path,
    score_whole,
    totals,
)
from pfljax.evaluation.passes import rows_per_pass
from pfljax.evaluation.uncertainty import OodExamples
from pfljax.evaluation.views import MIXTURE, client_model
from pfljax.runtime.programs import Same, memoize

Evaluate = Callable[..., dict[str, Array]]


def evaluate_in_two(
    setting: Setting, task: Task, view: str, width: int | None = None
) -> Evaluate:
    """`evaluate_clients` in two programs, of which all methods share the second.

    It is one program if the method does not predict as the task does.
    """
    if not predicts_as_task(setting, task):
        return evaluate_clients(setting, view, width)
    models = client_models(setting, view, width)
    batch_size, grid = setting.local.batch_size, setting.mesh
    same = Same(task), view, batch_size, grid, width
    scores = task_scores(*same, setting.scoring)

    def evaluate(state, clients, ids, train, test, ood=None, public=None):
        return scores(models(state, clients, ids, train, public), test, ood)

    return evaluate


def predicts_as_task(setting: Setting, task: Task) -> bool:
    """True if the clients' models are parameters of the task."""
    return setting.algorithm.predict is task.predict


def evaluate_clients(setting: Setting, view: str, width: int | None = None) -> Evaluate:
    """A jitted function (state, clients, ids, train, test, ood, public) -> metrics.

    `clients` holds the states of clients `ids` i32[n]. `train` and `test` are their
    examples, with offset and size i32[n]. `ood` are examples of other classes and
    `public` those of the server; None for none. Metrics are f32[n], and NaN for a
    client without test examples.
    """
    model_of = client_model(setting, view)
    score_model = _score(view, setting.algorithm.predict, setting.scoring)
    grid, batch_size = setting.mesh, setting.local.batch_size

    def locally(same, pools, split):
        state, others, public = same
        train_pool, test_pool = pools
        *_, test_spans, _ = split
        _, work = test_spans

        def evaluate_client(client_id, client, train_span, test_span, held):
            # The model is made of training examples alone; test examples come after.
            train = client_data(grid, train_pool, *train_span)
            model = model_of(state, client_id, client, train, public)
            test = client_data(grid, test_pool, *test_span)
            return score_model(model, test, batch_size, _join(others, held))

        return chunked_vmap.over_clients(evaluate_client, split, work, width)

    def evaluate(state, clients, ids, train, test, ood=None, public=None):
        others, held = _split(ood)
        # Clients travel with `split`: here they would go to every device whole.
        same = state._replace(clients=()), others, public
        pools = train.examples, test.examples
        train_spans = train.offset, train.size
        test_spans = test.offset, test.size
        split = ids, clients, train_spans, test_spans, held
        return mesh.over_rows(grid, locally, same, pools, split, len(ids))

    return jax.jit(evaluate)


def client_models(
    setting: Setting, view: str, width: int | None = None
) -> Callable[..., Any]:
    """A jitted function (state, clients, ids, train, public) -> their models, stacked.

    The arguments are those of `evaluate_clients`. On several devices the models lie in
    blocks.
    """
    model_of = client_model(setting, view)
    grid = setting.mesh

    def locally(same, pool, split):
        state, public = same
        *_, size = split

        def make_model(client_id, client, offset, size):
            train = client_data(grid, pool, offset, size)
            return model_of(state, client_id, client, train, public)

        return _map(make_model, split, size, width)

    def models(state, clients, ids, train, public=None):
        same = state._replace(clients=()), public
        split = mesh.pad(grid, (ids, clients, train.offset, train.size), len(ids))
        over = mesh.over(grid, locally, mesh.WHOLE, mesh.data(grid), mesh.SPLIT)
        return over(same, train.examples, split)

    return jax.jit(models)


def score_models(
    score_model: Callable[..., dict[str, Array]],
    batch_size: int,
    grid: mesh.Grid | None,
    width: int | None = None,
) -> Evaluate:
    """A jitted function (models, data, ood) -> metrics [n] of each on its examples.

    `score_model` is a function (model, data, batch_size, ood) -> metrics of one model.
    `models` are those of `client_models`; `data` has offset and size i32[n].
    """

    def locally(others, pool, split):
        *_, work, _ = split

        def score_client(model, offset, size, held):
            data = client_data(grid, pool, offset, size)
            return score_model(model, data, batch_size, _join(others, held))

        return _map(score_client, split, work, width)

    def scores(models, data, ood=None):
        others, held = _split(ood)
        split = models, data.offset, data.size, held
        count = len(data.size)
        return mesh.over_rows(grid, locally, others, data.examples, split, count)

    return jax.jit(scores)


@memoize
def task_scores(
    task: Same,
    view: str,
    batch_size: int,
    grid: mesh.Grid | None,
    width: int | None = None,
    scoring: Scoring = CLASSES,
) -> Evaluate:
    """`score_models` of models of the task; the ends of a mixture are two of them."""
    score_model = _score(view, task.value.predict, scoring)
    return score_models(score_model, batch_size, grid, width)


def _score(
    view: str, predict: Callable[..., Array], scoring: Scoring
) -> Callable[..., dict[str, Array]]:
    """A function (model, data, batch_size, ood) -> metrics of one client."""
    if view == MIXTURE:
        return partial(score_path, predict, scoring=scoring)

    def score_model(model, data, batch_size, ood):
        predict_batch = partial(predict, model)
        return score(predict_batch, data, batch_size, ood=ood, scoring=scoring)

    return score_model


def evaluate_server(setting: Setting, task: Task) -> Evaluate:
    """A function (server, data, ood) -> metrics f32[U] of the server's model.

    `task` is that of the server's model; `data` and `ood` are those of `score_server`.

    Raises:
      ValueError: the method has no such model.
    """
    server_model = setting.algorithm.server_model
    if server_model is None:
        raise ValueError("this method keeps no server model; evaluate 'personal'")
    model = jax.jit(server_model)
    of_model = Same(task), setting.local.batch_size, setting.mesh
    scores = score_server(*of_model, setting.scoring)
    return lambda server, *data: scores(model(server), *data)


@memoize
def score_server(
    task: Same,
    batch_size: int,
    grid: mesh.Grid | None,
    scoring: Scoring = CLASSES,
) -> Evaluate:
    """A jitted function (params, data, ood) -> metrics f32[U] of one model.

    `data` has offset and size i32[U]. Few long spans are cut, so that every device of
    the mesh has its part.
    """
    devices = grid.size if grid else 1

    def locally(same, pool, split):
        params, others = same
        _, work, _ = split

        def add_span(offset, size, held):
            data = client_data(grid, pool, offset, size)
            predict = partial(task.value.predict, params)
            others_held = _join(others, held)
            sums = totals(predict, data, batch_size, ood=others_held, scoring=scoring)
            # Metrics of all examples of a client are those of its whole span.
            return sums, score_whole(predict, data, batch_size, scoring)

        return chunked_vmap.over_clients(add_span, split, work, width=1)

    def scores(params, data, ood=None):
        count = len(data.size)
        others, held = _split(ood)
        # Where there are many spans, the devices are busy with whole ones.
        parts = 1 if scoring.whole or count >= 4 * devices else devices
        held = jax.tree.map(lambda leaf: jnp.repeat(leaf, parts, axis=0), held)
        split = *cut(data, parts, rows_per_pass(batch_size)), held
        same = params, others
        by_part, whole = mesh.over_rows(
            grid, locally, same, data.examples, split, count * parts
        )

        def add_parts(leaf: Array) -> Array:
            return leaf.reshape(count, parts, *leaf.shape[1:]).sum(1)

        return from_totals(jax.tree.map(add_parts, by_part), scoring) | whole

    return jax.jit(scores)


def cut(data: ClientData, parts: int, at_once: int) -> tuple[Array, Array]:
    """(offset, size) i32[U * parts] of each span's parts, in the order of its examples.

    All but the last are of whole passes of `at_once` examples, so that minibatches stay
    those of the uncut span; the last ones may be empty.
    """
    passes = -(-data.size // (parts * at_once))
    length = (passes * at_once)[:, None]
    size = data.size[:, None]
    start = jnp.minimum(jnp.arange(parts) * length, size)
    offset = data.offset[:, None] + start
    return offset.ravel(), jnp.minimum(size - start, length).ravel()


def quantities_of_clients(
    setting: Setting, width: int | None = None
) -> Evaluate | None:
    """A jitted function (state, clients, ids) -> the method's `quantities`, f32[n].

    `clients` holds the states of clients `ids` i32[n], of which `width` are computed at
    once; None for all. The result is None for a method that has no quantities.
    """
    quantities = setting.algorithm.quantities
    if quantities is None:
        return None

    def locally(server, _, split):
        ids, _ = split

        def compute(client):
            return quantities(server, client[1])

        # In their order: all take equally long, and sorting would copy the states.
        return jax.lax.map(compute, split, batch_size=width or len(ids))

    def run(state, clients, ids):
        split = ids, clients
        return mesh.over_rows(setting.mesh, locally, state.server, (), split, len(ids))

    return jax.jit(run)


def _split(ood: OodExamples | None) -> tuple[Any, Any]:
    """(what all clients share, what each client has of its own); ((), ()) for None."""
    return ((), ()) if ood is None else (ood.examples, ood.held)


def _join(others: Any, held: Any) -> OodExamples | None:
    """The `OodExamples` of one client, from the parts of `_split`."""
    return OodExamples(others, held) if others else None


def _map(f: Callable[..., Any], args: tuple, steps: Array, width: int | None) -> Any:
    """`chunked_vmap.over_clients`; one at a time they need no sorting, which copies."""
    if width == 1:
        return jax.lax.map(lambda client: f(*client), args)
    return chunked_vmap.over_clients(f, args, steps, width)


def client_data(
    grid: mesh.Grid | None, pool: Any, offset: Array, size: Array
) -> ClientData:
    """A client's examples in the pool of this device."""
    return ClientData(pool, mesh.inside(grid, offset, pool.y), size)
