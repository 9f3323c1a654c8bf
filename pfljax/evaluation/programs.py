"""Compiled programs that judge: metrics of every client's model on that client's rows.

Each is jitted once a run and called after any round. On several devices every device
judges its part of the clients. `pfljax.evaluation.apart` has the same in two programs.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from pfljax.core.types import Array, Task
from pfljax.engine import Setting, chunked_vmap, mesh
from pfljax.evaluation.apart import (
    ends_of,
    foreign_of,
    judge_one,
    parts_of,
    rows_of,
)
from pfljax.evaluation.metrics import score, score_path
from pfljax.evaluation.views import View, model_of


def judge(
    setting: Setting,
    view: View,
    width: int | None = None,
) -> Callable[..., dict[str, Array]]:
    """A jitted function (state, clients, ids, train, test, foreign, public) -> metrics
    [n].

    `clients` holds the states of clients `ids` i32[n]; `train` and `test` their rows,
    offset and size stacked likewise; `foreign` rows of other classes and `public` those
    of the server, None for none.
    Metrics of a client without test rows are NaN.
    """
    model_for = model_of(setting, view)
    predict = setting.algorithm.predict
    batch_size = setting.local.batch_size

    def locally(same, pools, split):
        state, others, public = same
        train_pool, test_pool = pools
        *_, test_spans, _ = split
        _, work = test_spans

        def one(client_id, client, train_span, test_span, held):
            # The model is made of training rows alone; test rows are read after it.
            train = rows_of(setting.mesh, train_pool, *train_span)
            model = model_for(state, client_id, client, train, public)
            test = rows_of(setting.mesh, test_pool, *test_span)
            foreign = foreign_of(others, held)
            return score(partial(predict, model), test, batch_size, foreign=foreign)

        return chunked_vmap.over_clients(one, split, work, width)

    def run(
        state,
        clients,
        ids,
        train,
        test,
        foreign=None,
        public=None,
    ):
        others, held = parts_of(foreign)
        # Clients travel with `split`: here they would go to every device whole.
        same = state._replace(clients=()), others, public
        pools = train.examples, test.examples
        train_spans = train.offset, train.size
        test_spans = test.offset, test.size
        split = ids, clients, train_spans, test_spans, held
        return mesh.over_rows(setting.mesh, locally, same, pools, split, len(ids))

    return jax.jit(run)


def judge_server(setting: Setting, task: Task) -> Callable[..., dict[str, Array]]:
    """A jitted function (server, rows, foreign) -> metrics f32[U] of its model.

    `rows` and `foreign` are those of `judge_one`.
    """
    server_model = model_of_server(setting)
    judge_model = judge_one(task, setting.local.batch_size, setting.mesh)

    def run(server, rows, foreign=None):
        return judge_model(server_model(server), rows, foreign)

    return jax.jit(run)


def model_of_server(setting: Setting) -> Callable[[Any], Any]:
    """The method's function server -> the server's one model.

    Raises:
      ValueError: the method has none.
    """
    server_model = setting.algorithm.server_model
    if server_model is None:
        raise ValueError("this method keeps no server model; judge 'personal'")
    return server_model


def judge_path(
    setting: Setting,
    width: int | None = None,
) -> Callable[..., dict[str, Array]]:
    """A jitted function (state, clients, ids, test, foreign) -> metrics by client.

    Of methods with endpoints: those of `score_path`. The arguments are of `judge`.
    """
    ends = ends_of(setting)
    predict = setting.algorithm.predict
    batch_size = setting.local.batch_size

    def locally(same, pool, split):
        state, others = same
        *_, work, _ = split

        def one(client_id, client, offset, size, held):
            path = ends(state, client_id, client)
            data = rows_of(setting.mesh, pool, offset, size)
            return score_path(predict, path, data, batch_size, foreign_of(others, held))

        return chunked_vmap.over_clients(one, split, work, width)

    def run(state, clients, ids, test, foreign=None):
        others, held = parts_of(foreign)
        same = state._replace(clients=()), others
        split = ids, clients, test.offset, test.size, held
        pool = test.examples
        return mesh.over_rows(setting.mesh, locally, same, pool, split, len(ids))

    return jax.jit(run)
