"""What a method, a selection and an evaluation are told of a round and a client."""

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import engine, selection
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.multi_task.ditto import ditto
from pfljax.conformance import toy
from pfljax.core.types import ClientData, Examples
from pfljax.evaluation import programs
from pfljax.selection import Selection

TASK, LOCAL = toy.quadratic(), toy.full_batch()
CLIENTS = len(toy.SIZES)
ROWS = toy.noisy_clients()
PUBLIC = ClientData(
    Examples(jnp.full((5, 4), 7.0), jnp.zeros(5, jnp.int32)), jnp.int32(2), jnp.int32(3)
)


def remembering():
    """A method whose server keeps what it was told, and a row a client, f32[C]."""
    plain = fedavg(TASK, LOCAL)

    def init(params, num_clients, key):
        return {"seen": jnp.zeros(num_clients), "round": jnp.int32(-1),
                "key": key, "public": jnp.float32(0)}  # fmt: skip

    def train(turn, message, client, data):
        told = {"id": turn.id.astype(jnp.float32), "count": turn.public.size}
        return client, told, {"loss": jnp.float32(turn.id)}

    def aggregate(server, uploads, cohort):
        public = cohort.public
        row = jnp.take(public.examples.x, public.offset, axis=0)[0]
        return {
            "seen": server["seen"].at[cohort.ids].add(uploads["id"] + 1, mode="drop"),
            "round": cohort.round,
            "key": cohort.key,
            "public": row * public.size,
        }

    return plain._replace(
        init=init,
        message=lambda turn, server, client: server["seen"][turn.id],
        train=train,
        aggregate=aggregate,
        server_model=None,
        personal=lambda turn, server, client, data: server["seen"],
    )


def made(method, select):
    setting = engine.Setting(method, LOCAL, select)
    return setting, engine.init(setting, TASK, CLIENTS, jax.random.key(3))


def test_aggregate_is_told_the_round_a_key_of_its_own_and_the_public_rows():
    setting, state = made(remembering(), selection.uniform(3, CLIENTS))
    run = jax.jit(lambda s: engine.one_round(setting, s, ROWS, public=PUBLIC)[0])
    first = run(state)
    second = run(first)
    assert [int(first.server["round"]), int(second.server["round"])] == [0, 1]
    assert second.server["public"] == 7 * 3
    keys = [state.server["key"], first.server["key"], second.server["key"]]
    assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == 3


def test_a_server_keeps_rows_by_client_in_training_and_in_evaluation():
    """In "trained" a client writes its own row of a copy, not client 0's."""
    setting, state = made(remembering(), selection.uniform(3, CLIENTS))
    state, _ = engine.one_round(setting, state, ROWS)
    took_part = np.asarray(state.participations) > 0
    wanted = np.where(took_part, np.arange(CLIENTS) + 1, 0)
    np.testing.assert_array_equal(state.server["seen"], wanted)
    model_for = programs.model_of(setting, programs.View("trained"))
    for k in (0, 5):
        after = model_for(state, jnp.int32(k), (), toy.one(ROWS, k), None)
        np.testing.assert_array_equal(
            after, wanted + (np.arange(CLIENTS) == k) * (k + 1)
        )


def test_without_public_rows_there_are_none():
    setting, state = made(remembering(), selection.uniform(3, CLIENTS))
    state, _ = engine.one_round(setting, state, ROWS)
    assert state.server["public"] == 0


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
        work=lambda key, steps: (steps, (jnp.arange(CLIENTS) != 2) * 1.0),
    )
    setting, state = made(ditto(TASK, LOCAL), late)
    state, _ = engine.one_round(setting, state, ROWS)
    assert state.participations.tolist() == [1, 1, 0, 1, 1, 1, 1, 1]
    judge = programs.model_of(setting, programs.View())
    w = toy.flat(state.server)
    v = toy.flat(state.clients)
    for k, wanted in ((1, v[1]), (2, w), (CLIENTS, w)):
        client = jax.tree.map(lambda leaf, k=k: leaf[min(k, 7)], state.clients)
        model = judge(state, jnp.int32(k), client, toy.one(ROWS, 0), None)
        np.testing.assert_array_equal(toy.flat(model), wanted)
    assert not np.allclose(v[1], w)
