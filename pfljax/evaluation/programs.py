"""What is reported, and of which parameters, over which clients, and when.

A `View` names what is judged. `judge` computes metrics of every client in one compiled
program; `summarise` turns them into figures over clients. No method sees a test row
here: `personal` and fine-tuning get the training rows.
"""

from collections.abc import Callable, Sequence
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
from pfljax.engine.plan import public_rows
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
        trained = self.model == "trained"
        return "after local training" if trained else "after the newest broadcast"


def views_of(algorithm: Algorithm, trained: bool = False) -> list[str]:
    """The models that are judged apart: what is the server's for all is judged once."""
    views = []
    if algorithm.server_model is not None:
        views.append("server")
    if algorithm.personal is not None:
        views.append("personal")
    if trained:
        views.append("trained")
    return views


def by_client(
    algorithm: Algorithm,
    judged: Callable[[str, str], dict[str, Any]],
    views: Sequence[str],
    splits: Sequence[str],
) -> dict[str, Any]:
    """Metrics of each client by "model/split/metric"; this is how a state is judged.

    Where nobody has a model of their own, the server's stand under "personal" as well.

    Args:
      algorithm: the method.
      judged: (view, split) -> metrics by name, an array over clients each.
      views: of `views_of`.
      splits: those of "test" and "validation" in which somebody has rows.
    """
    values = {}
    for view in views:
        for split in splits:
            if view == "trained" and split == "validation":
                continue
            metrics = judged(view, split)
            names = [view]
            if view == "server" and algorithm.personal is None:
                names.append("personal")
            for name in names:
                values |= {f"{name}/{split}/{m}": metrics[m] for m in metrics}
    return values


def along_path(
    judged: Callable[[str], dict[str, Any]], splits: Sequence[str]
) -> dict[str, Any]:
    """Metrics [C, 11] by "split/metric" of the models between the endpoints."""
    values = {}
    for split in splits:
        metrics = judged(split)
        values |= {f"{split}/{m}": metrics[m] for m in metrics}
    return values


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

    def locally(same, pools, split):
        state, public = same
        train_pool, test_pool = pools

        def one(client_id, client, train_span, test_span):
            train = rows_of(setting, train_pool, *train_span)
            model = model_for(state, client_id, client, train, public)
            test = rows_of(setting, test_pool, *test_span)
            return score(partial(predict, model), test, setting.local.batch_size)

        return chunked_vmap.over_clients(one, split, split[-1][1], width)

    def run(state, clients, ids, train, test, public=None):
        same = state._replace(clients=()), public
        pools = train.examples, test.examples
        split = ids, clients, (train.offset, train.size), (test.offset, test.size)
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
    """(state, client_id, client, train data, public) -> the parameters to judge."""
    algorithm = setting.algorithm

    def personal(state, client_id, client, data, public):
        turn = turn_of(setting, state, client_id, data, public)
        took_part = has_taken_part(state, client_id)
        return personal_model(algorithm, turn, state.server, client, data, took_part)

    def trained(state, client_id, client, data, public):
        turn = turn_of(setting, state, client_id, data, public)
        return after_training(algorithm, turn, state.server, client, data)

    models = {"personal": personal, "trained": trained}
    if view.model not in models:
        raise ValueError(f"view {view.model!r} is unknown; known: {', '.join(models)}")
    return models[view.model]


def has_taken_part(state: RunState, client_id: Array) -> Array:
    """Whether this client ever reported, bool[]; those held out have numbers past C."""
    counts = state.participations
    known = client_id < counts.shape[0]
    return known & (jnp.take(counts, client_id, mode="clip") > 0)


def personal_model(
    algorithm: Algorithm,
    turn: Turn,
    server: Any,
    client: Any,
    data: ClientData,
    took_part: Array,
) -> Any:
    """The model by which a client is judged: the one rule, newcomers included."""
    if algorithm.personal is None:
        assert algorithm.server_model is not None
        return algorithm.server_model(server)
    personal = algorithm.personal(turn, server, client, data)
    if algorithm.newcomer is None:
        return personal
    return tree.where(took_part, personal, algorithm.newcomer(turn, server, data))


def turn_of(
    setting: Setting,
    state: RunState,
    client_id: Array,
    data: ClientData,
    public: ClientData | None = None,
) -> Turn:
    """What a client is told in an evaluation after this round."""
    key = jax.random.fold_in(derive(state.key, "evaluation"), state.round)
    return Turn(
        key=engine.client_key(key, client_id),
        round=state.round,
        steps=budget(setting.local, data.size),
        id=client_id,
        num_clients=state.participations.shape[0],
        public=public_rows(data.examples, public),
    )


def after_training(
    algorithm: Algorithm, turn: Turn, server: Any, client: Any, data: ClientData
) -> Any:
    """The personal model after one local training, averaged with nobody."""
    message = algorithm.message(turn, server, client)
    client, upload, _ = algorithm.train(turn, message, client, data)
    alone = Cohort(
        ids=turn.id[None],
        weight=jnp.asarray(data.size, jnp.float32)[None],
        mask=jnp.ones(1),
        draws=jnp.ones(1),
        num_clients=turn.num_clients,
        round=turn.round,
        key=derive(turn.key, "server"),
        public=turn.public,
    )
    uploads = jax.tree.map(lambda leaf: leaf[None], upload)
    server = algorithm.aggregate(server, uploads, alone)
    turn = turn._replace(round=turn.round + 1)  # one more is finished
    took_part = jnp.bool_(True)
    return personal_model(algorithm, turn, server, client, data, took_part)


def judge_path(
    setting: Setting, width: int | None = None
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
        size = setting.local.batch_size
        return score(partial(algorithm.predict, model), data, size)

    def locally(state, pool, split):
        def one(client_id, client, offset, size):
            a, b = endpoints(state.server, client)
            if algorithm.newcomer is not None:
                b = tree.where(has_taken_part(state, client_id), b, a)
            data = rows_of(setting, pool, offset, size)
            return jax.lax.map(lambda t: score_at(t, a, b, data), jnp.asarray(GRID))

        return chunked_vmap.over_clients(one, split, split[3], width)

    def run(state, clients, ids, test):
        same = state._replace(clients=())
        split = ids, clients, test.offset, test.size
        return mesh.over_rows(
            setting.mesh, locally, same, test.examples, split, len(ids)
        )

    return jax.jit(run)


def records(
    algorithm: Algorithm,
    values: dict[str, np.ndarray],
    sizes: dict[str, np.ndarray],
    groups: dict[str, np.ndarray],
) -> list[dict[str, Any]]:
    """One record a model, split and group of clients: of whom, when, and figures.

    Args:
      algorithm: the method.
      values: metrics [C] by "model/split/metric", of `by_client`.
      sizes: rows [C] by split, the weights of weighted means.
      groups: indices of clients by the name of their group.
    """
    judged: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for name, metric_values in values.items():
        model, split, metric = name.split("/")
        judged.setdefault((model, split), {})[metric] = metric_values
    return [
        {
            "model": "server" if model == "server" else "personal",
            "finetune": 0 if model == "server" else algorithm.adaptation_steps,
            "clients": clients,
            "when": View(model).when,
            "split": split,
            "count": len(ids),
            "metrics": {
                name: summarise(metric[ids], sizes[split][ids], name)
                for name, metric in metrics.items()
            },
        }
        for (model, split), metrics in judged.items()
        for clients, ids in groups.items()
        if len(ids)
    ]


def mixture_summary(path: dict[str, np.ndarray], weight: np.ndarray) -> dict[str, Any]:
    """Figures over clients at lambda = 1/2, chosen on validation rows, and the
    oracle's.

    Args:
      path: metrics [C, 11] by "split/metric", of `along_path`.
      weight: test rows [C].
    """
    test = {
        name.removeprefix("test/"): metric
        for name, metric in path.items()
        if name.startswith("test/")
    }

    def figures(chosen_on: np.ndarray) -> dict[str, Any]:
        return {
            name: summarise(pick_lambda(chosen_on, metric), weight, name)
            for name, metric in test.items()
        }

    middle = np.zeros_like(test["accuracy"])
    middle[:, GRID.index(0.5)] = 1
    validation = path.get("validation/accuracy")
    return {
        "half": figures(middle),
        "chosen_on_validation": None if validation is None else figures(validation),
        "oracle_chosen_on_test": figures(test["accuracy"]),
    }
