"""What is reported, and of which parameters, over which clients, and when.

A `View` names what is judged. `judge` computes metrics of every client in one compiled
program; `summarise` turns them into figures over clients. No method sees a test row
here: `personal` and fine-tuning get the training rows.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import engine
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.training import budget
from pfljax.core.types import Algorithm, Array, ClientData, Cohort, RunState, Task, Turn
from pfljax.engine import Setting, chunked_vmap, mesh
from pfljax.evaluation.metrics import (
    GRID,
    from_totals,
    pick_lambda,
    rows_per_pass,
    score,
    summarise,
    totals,
)


class View(NamedTuple):
    """Whose parameters are judged.

    "server": the server's one model. "personal": what the method's `personal` gives
    from the newest broadcast. "trained": the same after the client's own local training
    from the newest broadcast, before any averaging. The training leaves no trace in the
    run.
    """

    model: str = "personal"

    @property
    def when(self) -> str:
        """When the judged parameters were made."""
        own = self.model == "trained"
        return "after local training" if own else "after the newest broadcast"


def judge(
    setting: Setting,
    view: View,
    width: int | None = None,
) -> Callable[..., dict[str, Array]]:
    """A jitted function (state, clients, ids, train, test) -> metrics f32[len(ids)].

    `clients` holds the states of clients `ids`; `train` and `test` their rows, offset
    and size stacked likewise. Metrics of a client without test rows are NaN.
    """
    made = model_of(setting, view)
    predict = setting.algorithm.predict

    def locally(same, pools, split):
        def one(client_id, client, train_span, test_span):
            data = rows_of(setting, train_pool, *train_span)
            model = made(same, client_id, client, data)
            data = rows_of(setting, test_pool, *test_span)
            return score(partial(predict, model), data, setting.local.batch_size)

        train_pool, test_pool = pools
        return chunked_vmap.over_clients(one, split, split[-1][1], width)

    def run(state, clients, ids, train, test):
        state, pools = state._replace(clients=()), (train.examples, test.examples)
        split = ids, clients, (train.offset, train.size), (test.offset, test.size)
        return mesh.over_rows(setting.mesh, locally, state, pools, split, len(ids))

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

        def one(offset, size):
            part = rows_of(setting, pool, offset, size)
            return totals(partial(task.predict, model), part, batch_size)

        return chunked_vmap.over_clients(one, split, split[1], 1)

    def run(server, rows):
        count = len(rows.size)
        parts = 1 if count >= 4 * devices else devices
        each = -(-rows.size // (parts * rows_per_pass(batch_size)))
        length = (each * rows_per_pass(batch_size))[:, None]
        start = jnp.minimum(jnp.arange(parts) * length, rows.size[:, None])
        size = jnp.minimum(rows.size[:, None] - start, length)
        split = (rows.offset[:, None] + start).ravel(), size.ravel()
        given = server, rows.examples, split
        found = mesh.over_rows(setting.mesh, locally, *given, count * parts)
        return from_totals(
            jax.tree.map(
                lambda leaf: leaf.reshape(count, parts, *leaf.shape[1:]).sum(1), found
            )
        )

    return jax.jit(run)


def rows_of(setting: Setting, pool: Any, offset: Array, size: Array) -> ClientData:
    """A client's rows in the pool of this device."""
    return ClientData(pool, mesh.inside(setting.mesh, offset, pool.y), size)


def model_of(setting: Setting, view: View) -> Callable[..., Any]:
    """(state, client_id, client, train data) -> the parameters to judge."""
    algorithm = setting.algorithm

    def personal(state, client_id, client, data):
        turn = turn_of(setting, state, client_id, data)
        return algorithm.personal(turn, state.server, client, data)

    def trained(state, client_id, client, data):
        turn = turn_of(setting, state, client_id, data)
        return after_training(algorithm, turn, state.server, client, data)

    found = {"personal": personal, "trained": trained}
    if view.model not in found:
        raise ValueError(f"view {view.model!r} is unknown; known: {', '.join(found)}")
    return found[view.model]


def turn_of(
    setting: Setting, state: RunState, client_id: Array, data: ClientData
) -> Turn:
    """What a client is told in an evaluation after this round."""
    key = jax.random.fold_in(derive(state.key, "evaluation"), state.round)
    key = engine.client_key(key, client_id)
    return Turn(key, state.round, budget(setting.local, data.size))


def after_training(
    algorithm: Algorithm, turn: Turn, server: Any, client: Any, data: ClientData
) -> Any:
    """The personal model after one local training, averaged with nobody."""
    message = algorithm.message(server, client)
    client, upload, _ = algorithm.train(turn, message, client, data)
    weight = jnp.asarray(data.size, jnp.float32)[None]
    alone = Cohort(jnp.zeros(1, jnp.int32), weight, jnp.ones(1), jnp.ones(1), 1)
    server = algorithm.aggregate(server, jax.tree.map(lambda a: a[None], upload), alone)
    turn = turn._replace(round=turn.round + 1)  # one more is finished
    return algorithm.personal(turn, server, client, data)


def judge_path(
    setting: Setting, width: int | None = None
) -> Callable[..., dict[str, Array]]:
    """Like `judge` for methods with endpoints: f32[len(ids), 11] over `GRID`."""
    algorithm, endpoints = setting.algorithm, setting.algorithm.endpoints
    if endpoints is None:
        raise ValueError("this method has no endpoints, so there is no path to judge")

    def score_at(t, a, b, data):
        model = tree.lerp(a, b, t)
        size = setting.local.batch_size
        return score(partial(algorithm.predict, model), data, size)

    def locally(server, pool, split):
        def one(client, offset, size):
            a, b = endpoints(server, client)
            data = rows_of(setting, pool, offset, size)
            return jax.lax.map(lambda t: score_at(t, a, b, data), jnp.asarray(GRID))

        return chunked_vmap.over_clients(one, split, split[2], width)

    def run(state, clients, ids, test):
        given = state.server, test.examples, (clients, test.offset, test.size)
        return mesh.over_rows(setting.mesh, locally, *given, len(ids))

    return jax.jit(run)


def records(
    view: str, split: str, finetune: int, values: dict[str, np.ndarray],
    weight: np.ndarray, groups: dict[str, np.ndarray],
) -> list[dict[str, Any]]:  # fmt: skip
    """One record a group of clients: of whom, of which parameters, when, and figures.

    `values` holds metrics [C], `weight` the rows [C], `groups` indices into them.
    """
    return [
        {
            "model": "server" if view == "server" else "personal",
            "finetune": finetune if view != "server" else 0,
            "clients": clients,
            "when": View(view).when,
            "split": split,
            "count": len(ids),
            "metrics": {
                name: summarise(metric[ids], weight[ids], name)
                for name, metric in values.items()
            },
        }
        for clients, ids in groups.items()
        if len(ids)
    ]


def mixture_summary(
    paths: dict[str, dict[str, np.ndarray]], weight: np.ndarray
) -> dict[str, Any]:
    """Figures over clients at lambda = 1/2, chosen on validation rows, and the
    oracle's.

    `paths` holds, for "test" and (if there are any) "validation" rows, metrics [C, 11].
    """
    test = paths["test"]

    def figures(chosen_on: np.ndarray) -> dict[str, Any]:
        return {
            name: summarise(pick_lambda(chosen_on, metric), weight, name)
            for name, metric in test.items()
        }

    middle = np.zeros_like(test["accuracy"])
    middle[:, GRID.index(0.5)] = 1
    validation = paths.get("validation")
    return {
        "half": figures(middle),
        "chosen_on_validation": figures(validation["accuracy"]) if validation else None,
        "oracle_chosen_on_test": figures(test["accuracy"]),
    }
