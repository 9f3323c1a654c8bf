"""The models of a client that are evaluated.

server    the server's one model
personal  the model that the method's `personal` makes from the newest broadcast
trained   the same after local training from the newest broadcast, before any averaging;
          this training does not change the run
mixture   the two ends of the path of models that the method mixes

No method sees a test example: `personal`, fine-tuning and training get the training
examples.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pfljax import engine
from pfljax.core import tree
from pfljax.core.communication import in_a_round
from pfljax.core.keys import derive
from pfljax.core.training import budget
from pfljax.core.types import Algorithm, Array, ClientData, Cohort, RunState, Turn
from pfljax.engine import Setting
from pfljax.engine.plan import public_data

SERVER, PERSONAL, TRAINED, MIXTURE = "server", "personal", "trained", "mixture"


def views(algorithm: Algorithm, trained: bool = False) -> list[str]:
    """The models to evaluate; a model that all clients share is evaluated once."""
    names = []
    if algorithm.server_model is not None:
        names.append(SERVER)
    if algorithm.personal is not None:
        names.append(PERSONAL)
    if trained:
        names.append(TRAINED)
    return names


def client_model(setting: Setting, view: str) -> Callable[..., Any]:
    """A function (state, client_id, client, train data, public) -> parameters."""
    algorithm = setting.algorithm

    def personal(state, client_id, client, data, public):
        turn = evaluation_turn(setting, state, client_id, data, public)
        took_part = has_taken_part(state, client_id)
        return personal_model(algorithm, turn, state.server, client, data, took_part)

    def train(state, client_id, client, data, public):
        turn = evaluation_turn(setting, state, client_id, data, public)
        return trained_model(algorithm, turn, state.server, client, data)

    def mixture(state, client_id, client, data, public):
        return endpoints(algorithm, state, client_id, client)

    models = {PERSONAL: personal, TRAINED: train, MIXTURE: mixture}
    return models[view]


def has_taken_part(state: RunState, client_id: Array) -> Array:
    """True if this client ever reported, bool[]; newcomers have numbers past C."""
    counts = state.participations
    known = client_id < counts.shape[0]
    count = jnp.take(counts, client_id, mode="clip")
    return known & (count > 0)


def personal_model(
    algorithm: Algorithm,
    turn: Turn,
    server: Any,
    client: Any,
    data: ClientData,
    took_part: Array,
) -> Any:
    """The model that a client uses, also if it is a newcomer."""
    if algorithm.personal is None:
        assert algorithm.server_model is not None
        return algorithm.server_model(server)
    personal = algorithm.personal(turn, server, client, data)
    if algorithm.newcomer is None:
        return personal
    # Both are computed: under vmap some clients took part and others did not.
    newcomer = algorithm.newcomer(turn, server, data)
    return tree.where(took_part, personal, newcomer)


def endpoints(
    algorithm: Algorithm, state: RunState, client_id: Array, client: Any
) -> tuple[Any, Any]:
    """The two ends of the client's path, for a method with endpoints.

    If newcomers do not use their own model, both ends of a client that never took part
    are the server's.
    """
    assert algorithm.endpoints is not None
    a, b = algorithm.endpoints(state.server, client)
    if algorithm.newcomer is not None:
        b = tree.where(has_taken_part(state, client_id), b, a)
    return a, b


def evaluation_turn(
    setting: Setting,
    state: RunState,
    client_id: Array,
    data: ClientData,
    public: ClientData | None = None,
) -> Turn:
    """The turn of a client in an evaluation after this round."""
    # Not the key of a round: an evaluation must not repeat a training's minibatches.
    key = jax.random.fold_in(derive(state.key, "evaluation"), state.round)
    return Turn(
        key=engine.client_key(key, client_id),
        round=state.round,
        steps=budget(setting.local, data.size),
        id=client_id,
        num_clients=state.participations.shape[0],
        public=public_data(data.examples, public),
    )


def single_cohort(turn: Turn, data: ClientData) -> Cohort:
    """The cohort of the client of this turn alone.

    Its number and the number of clients are the true ones, because a server may keep
    rows by client.
    """
    return Cohort(
        ids=turn.id[None],
        weight=jnp.asarray(data.size, jnp.float32)[None],
        mask=jnp.ones(1),
        draws=jnp.ones(1),
        num_clients=turn.num_clients,
        round=turn.round,
        key=derive(turn.key, "server"),
        public=turn.public,
    )


def trained_model(
    algorithm: Algorithm, turn: Turn, server: Any, client: Any, data: ClientData
) -> Any:
    """The personal model after one local training, without averaging.

    A method makes it from the server's state and the client's. So the upload goes to a
    copy of the server, to which only this client reports.
    """
    for exchange in in_a_round(algorithm):
        server, client = _exchange(exchange, turn, server, client, data)
    turn = turn._replace(round=turn.round + 1)  # one more round is finished
    took_part = jnp.bool_(True)
    return personal_model(algorithm, turn, server, client, data, took_part)


def _exchange(
    algorithm: Algorithm, turn: Turn, server: Any, client: Any, data: ClientData
) -> tuple[Any, Any]:
    """(server, client) after an exchange in which only this client reports."""
    message = algorithm.message(turn, server, client)
    client, upload, _ = algorithm.train(turn, message, client, data)
    uploads = jax.tree.map(lambda leaf: leaf[None], upload)
    cohort = single_cohort(turn, data)
    number = algorithm.architecture
    if number is not None:
        uploads = {number: uploads}
        cohort = cohort._replace(places={number: jnp.zeros(1, jnp.int32)})
    return algorithm.aggregate(server, uploads, cohort), client
