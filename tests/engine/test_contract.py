"""Servers with rows by client, selections that learn, and who is a newcomer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import engine, selection
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.multi_task.ditto import ditto
from pfljax.conformance import toy
from pfljax.evaluation import views
from pfljax.selection import Selection

TASK, LOCAL = toy.quadratic(), toy.full_batch()
CLIENTS = len(toy.SIZES)
ROWS = toy.noisy_clients()


def remembering():
    """A method whose server keeps a row a client, f32[C]: client k adds k + 1 to its.

    Client k reports the loss k.
    """

    def train(turn, message, client, data):
        number = turn.id.astype(jnp.float32)
        return client, number, {"loss": number}

    return fedavg(TASK, LOCAL)._replace(
        init=lambda params, num_clients, key: jnp.zeros(num_clients),
        message=lambda turn, rows, client: rows[turn.id],
        train=train,
        aggregate=lambda rows, uploads, cohort: rows.at[cohort.ids].add(
            uploads + 1, mode="drop"
        ),
        server_model=None,
        personal=lambda turn, rows, client, data: rows,
    )


def made(method, select):
    setting = engine.Setting(method, LOCAL, select)
    return setting, engine.init(setting, TASK, CLIENTS, jax.random.key(3))


def test_a_server_keeps_records_by_client_in_training_and_in_evaluation():
    """In "trained" a client writes its own row of a copy, not client 0's."""
    setting, state = made(remembering(), selection.uniform(3, CLIENTS))
    state, _ = engine.one_round(setting, state, ROWS)
    took_part = np.asarray(state.participations) > 0
    wanted = np.where(took_part, np.arange(CLIENTS) + 1, 0)
    np.testing.assert_array_equal(state.server, wanted)
    model_for = views.client_model(setting, "trained")
    for k in (0, 5):
        after = model_for(state, jnp.int32(k), (), toy.one(ROWS, k), None)
        np.testing.assert_array_equal(
            after, wanted + (np.arange(CLIENTS) == k) * (k + 1)
        )


def greedy(cohort):
    """A selection that learns: those of largest metric so far, the unknown first."""

    def update(scores, cohort, metrics):
        return scores.at[cohort.ids].set(metrics["loss"], mode="drop")

    return Selection(
        cohort=cohort,
        init=lambda: jnp.full(CLIENTS, jnp.inf),
        choose=lambda scores, key: jax.lax.top_k(scores, cohort)[1],
        update=update,
    )


def test_a_selection_learns_from_the_metrics_of_each_client():
    """Client k reports the loss k: after all are known, the largest are chosen."""
    setting, state = made(remembering(), greedy(4))
    assert selection.learns(setting.selection)
    assert not selection.learns(selection.uniform(2, 4))
    cohorts = []
    for _ in range(4):
        state, _ = jax.jit(lambda s: engine.one_round(setting, s, ROWS))(state)
        cohorts.append(sorted(state.cohort.tolist()))
    assert cohorts == [[0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7], [4, 5, 6, 7]]
    np.testing.assert_array_equal(state.selection, np.arange(CLIENTS))
    np.testing.assert_array_equal(state.participations, [1, 1, 1, 1, 3, 3, 3, 3])


def test_a_learning_selection_may_be_cut_anywhere():
    setting, state = made(remembering(), greedy(3))
    program = engine.compile_rounds(setting, 6)
    whole, _ = program(toy.copy(state), ROWS, 6)
    half, _ = program(toy.copy(state), ROWS, 2)
    toy.assert_same(program(half, ROWS, 4)[0], whole)


def test_who_never_reported_is_a_newcomer():
    """Drawn but dropped: its work is thrown away, so it has no model of its own."""
    late = selection.uniform(CLIENTS, CLIENTS)._replace(
        choose=lambda state, key: jnp.arange(CLIENTS),
        work=lambda state, key, ids, steps: (steps, (jnp.arange(CLIENTS) != 2) * 1.0),
    )
    setting, state = made(ditto(TASK, LOCAL), late)
    state, _ = engine.one_round(setting, state, ROWS)
    assert state.participations.tolist() == [1, 1, 0, 1, 1, 1, 1, 1]
    find_model = jax.jit(views.client_model(setting, "personal"))
    w = toy.flat(state.server)
    v = toy.flat(state.clients)
    for k, wanted in ((1, v[1]), (2, w), (CLIENTS, w)):
        client = jax.tree.map(lambda leaf, k=k: leaf[min(k, 7)], state.clients)
        model = find_model(state, jnp.int32(k), client, toy.one(ROWS, 0), None)
        np.testing.assert_array_equal(toy.flat(model), wanted)
    assert not np.allclose(v[1], w)


def test_metrics_without_a_loss_are_refused_before_anything_runs():
    def train(turn, message, client, data):
        return client, message, {"accuracy": jnp.float32(0)}

    method = fedavg(TASK, LOCAL)._replace(train=train)
    setting, state = made(method, selection.uniform(3, CLIENTS))
    with pytest.raises(ValueError, match=r"metrics \['accuracy'\]; give the data loss"):
        jax.eval_shape(lambda s: engine.one_round(setting, s, ROWS), state)
