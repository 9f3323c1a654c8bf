"""The inputs of a method in a round: its number, keys, ids, and public examples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import engine, selection
from pfljax.algorithms.fedavg import fedavg
from pfljax.conformance import toy

TASK = toy.quadratic()
LOCAL = toy.full_batch()
CLIENTS = len(toy.COUNTS)
ROUNDS = 3


def witness():
    """A method that trains nothing and records its inputs."""

    def inputs(record, num_clients):
        return {
            "round": record.round,
            "key": jax.random.key_data(record.key),
            "public": record.public.size,
            "num_clients": jnp.int32(num_clients),
        }

    def train(turn, message, client, data):
        kept = inputs(turn, turn.num_clients) | {"id": turn.id}
        return kept, jnp.float32(0), {"loss": jnp.float32(0)}

    nothing = {name: jnp.int32(-1) for name in ("round", "public", "num_clients")}
    nothing["key"] = jnp.zeros(2, jnp.uint32)
    return fedavg(TASK, LOCAL)._replace(
        init=lambda params, num_clients, key: nothing,
        init_client=lambda params, client_id, key: nothing | {"id": jnp.int32(-1)},
        message=lambda turn, server, client: (),
        train=train,
        aggregate=lambda server, uploads, cohort: inputs(cohort, cohort.num_clients),
    )


@pytest.fixture(scope="module")
def states():
    """The states after each round of all clients, with two examples at the server."""
    everybody = selection.uniform(CLIENTS, CLIENTS)
    setting = engine.Setting(witness(), LOCAL, everybody)
    train = toy.quadratic_clients()
    public = train._replace(offset=jnp.int32(0), size=jnp.int32(2))
    run = jax.jit(
        lambda state: engine.one_round(setting, state, train, public=public)[0]
    )
    states = [engine.init(setting, TASK, CLIENTS, jax.random.key(0))]
    for _ in range(ROUNDS):
        states.append(run(states[-1]))
    return states[1:]


def test_the_round_counts_from_zero(states):
    for index, state in enumerate(states):
        assert state.server["round"] == index
        assert (state.clients["round"] == index).all()


def test_every_client_and_the_server_draw_from_keys_of_their_own(states):
    keys = [
        np.concatenate([state.clients["key"], state.server["key"][None]])
        for state in states
    ]
    assert len(np.unique(np.concatenate(keys), axis=0)) == ROUNDS * (CLIENTS + 1)


def test_clients_know_who_they_are_and_the_server_how_many(states):
    np.testing.assert_array_equal(states[0].clients["id"], np.arange(CLIENTS))
    assert (states[0].clients["num_clients"] == CLIENTS).all()
    assert states[0].server["num_clients"] == CLIENTS


def test_the_servers_examples_reach_clients_and_server(states):
    assert (states[0].clients["public"] == 2).all()
    assert states[0].server["public"] == 2
