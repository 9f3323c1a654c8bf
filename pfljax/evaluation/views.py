"""Whose parameters are judged: what a view says of a client, and when they were made.

No method sees a test row here: `personal`, fine-tuning and training get the training
rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax import engine
from pfljax.core import tree
from pfljax.core.communication import in_a_round
from pfljax.core.keys import derive
from pfljax.core.training import budget
from pfljax.core.types import Algorithm, Array, ClientData, Cohort, RunState, Turn
from pfljax.engine import Setting
from pfljax.engine.plan import public_rows


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
        known = " or ".join(map(repr, models))
        raise ValueError(
            f"the view {view.model!r} is not of single clients; give {known}, or judge "
            "the server's one model by `programs.judge_server`"
        )
    return models[view.model]


def has_taken_part(state: RunState, client_id: Array) -> Array:
    """Whether this client ever reported, bool[]; those held out have numbers past C."""
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
    """The model by which a client is judged: the one rule, newcomers included."""
    if algorithm.personal is None:
        assert algorithm.server_model is not None
        return algorithm.server_model(server)
    personal = algorithm.personal(turn, server, client, data)
    if algorithm.newcomer is None:
        return personal
    # Both are computed: under vmap some clients took part and others did not.
    newcomer = algorithm.newcomer(turn, server, data)
    return tree.where(took_part, personal, newcomer)


def turn_of(
    setting: Setting,
    state: RunState,
    client_id: Array,
    data: ClientData,
    public: ClientData | None = None,
) -> Turn:
    """What a client is told in an evaluation after this round."""
    # Not the key of a round: an evaluation must not repeat a training's minibatches.
    key = jax.random.fold_in(derive(state.key, "evaluation"), state.round)
    return Turn(
        key=engine.client_key(key, client_id),
        round=state.round,
        steps=budget(setting.local, data.size),
        id=client_id,
        num_clients=state.participations.shape[0],
        public=public_rows(data.examples, public),
    )


def cohort_of_one(turn: Turn, data: ClientData) -> Cohort:
    """The cohort in which the client of this turn is alone.

    By its true number, and among as many clients: a server may keep rows by client.
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


def after_training(
    algorithm: Algorithm,
    turn: Turn,
    server: Any,
    client: Any,
    data: ClientData,
) -> Any:
    """The personal model after one local training, averaged with nobody.

    A method makes it of the server's state and the client's, so the upload has to reach
    a server: a copy, to which this client alone reports.
    """
    for exchange in in_a_round(algorithm):
        server, client = _exchanged(exchange, turn, server, client, data)
    turn = turn._replace(round=turn.round + 1)  # one more is finished
    took_part = jnp.bool_(True)
    return personal_model(algorithm, turn, server, client, data, took_part)


def _exchanged(
    algorithm: Algorithm,
    turn: Turn,
    server: Any,
    client: Any,
    data: ClientData,
) -> tuple[Any, Any]:
    """(server, client) after an exchange in which this client alone reports."""
    message = algorithm.message(turn, server, client)
    client, upload, _ = algorithm.train(turn, message, client, data)
    uploads = jax.tree.map(lambda leaf: leaf[None], upload)
    cohort = cohort_of_one(turn, data)
    number = algorithm.architecture
    if number is not None:
        uploads = {number: uploads}
        cohort = cohort._replace(places={number: jnp.zeros(1, jnp.int32)})
    return algorithm.aggregate(server, uploads, cohort), client
