import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import perceptron
from pfljax import models
from pfljax.algorithms.distillation.d_distillation import (
    Message,
    Server,
    d_distillation,
    kl,
)
from pfljax.algorithms.local import local as alone
from pfljax.conformance import Case, toy
from pfljax.core.optimizers import sgd
from pfljax.core.types import Batch, Examples, Local

# For 6 public examples: 3 probabilities, a flag and a number down, and 3 up. They are
# what a model says, no change of anything: law "2 origin" does not apply. That steps
# matter is tested below.
SENT = (4 * 6 * (3 + 1 + 1), 4 * 6 * 3)
CONFORMANCE = [
    Case("d_distillation", bytes=SENT, sends_statistics=True),
    Case("d_distillation", {"distance": "kl"}, bytes=SENT, sends_statistics=True),
]

RHO = 1.5
TASK = toy.classifier()
TRAIN, _ = toy.ragged()
PUBLIC = toy.public()
ROWS = toy.PUBLIC
NOISY = Local(0.1, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-2))


def built(local=NOISY, **options):
    return d_distillation(TASK, local, num_public=ROWS, **options)


def played(method, cohort=None, public=PUBLIC, local=NOISY, rounds=2):
    """The states after each round."""
    return toy.run_rounds(method, TASK, local, TRAIN, rounds, cohort, public=public)[0]


@pytest.fixture(scope="module")
def trained_alone():
    return played(alone(TASK, NOISY))


@pytest.fixture(scope="module")
def pulled():
    """The states of all clients after each of 3 rounds about 4 of the 6 examples."""
    return played(built(rho=5.0, subset=4), rounds=3)


def decisions(w, x):
    return perceptron.softmax(perceptron.logits(w, perceptron.features(w, x)))


def slope_of_distance(distance, s, z):
    """Of each example's distance to z, in its logits."""
    if distance == "kl":
        positive = np.clip(z, 1e-6, 1)
        return s - positive / positive.sum(1, keepdims=True)
    gap = 2 * (s - z)
    return s * (gap - (gap * s).sum(1, keepdims=True))


def trained(w, k, x_public, z, heard, distance):
    """The weights after two steps on all examples of client k and of the round."""
    x, y = perceptron.examples(k)
    for _ in range(2):
        a = perceptron.logits(w, perceptron.features(w, x))
        slope = perceptron.cross_entropy_slope(a, y)
        pull = slope_of_distance(distance, decisions(w, x_public), z)
        pull *= RHO * heard[:, None] / len(x_public)
        w = perceptron.stepped(w, np.r_[x, x_public], np.r_[slope, pull])
    return w


def neighbours(graph, present):
    """Whom each of those present hears."""
    if graph == "complete":
        return {k: [j for j in present if j != k] for k in present}
    return {k: [j for j in present if abs(j - k) in (1, 7)] for k in present}


@pytest.mark.parametrize(
    ("graph", "distance"),
    [
        ("complete", "square"),
        pytest.param("ring", "kl", marks=pytest.mark.slow),
    ],
)
def test_d_distillation_against_numpy(graph, distance):
    """5 of 8 clients take two steps a round, on all their examples and 4 of the 6."""
    options = {"rho": RHO, "graph": graph, "distance": distance, "subset": 4}
    method = built(perceptron.FULL, **options)
    states = played(method, 5, local=perceptron.FULL, rounds=3)
    clients = [perceptron.of_client(states[0].clients, k) for k in range(8)]
    z, s, heard = np.zeros((8, ROWS, 3)), np.zeros((8, ROWS, 3)), np.zeros((8, ROWS))
    pulls = 0
    for before, state in itertools.pairwise(states):
        subset = np.asarray(before.server.subset)
        x_public = np.float64(PUBLIC.examples.x)[subset]
        present = [int(k) for k in state.cohort]
        corrected = {}
        for k in present:
            known = z[k, subset], heard[k, subset]
            pulls += known[1].sum()
            clients[k] = trained(clients[k], k, x_public, *known, distance)
            sent = decisions(clients[k], x_public)
            corrected[k] = z[k, subset] + sent - s[k, subset]
            s[k, subset] = sent
        near = neighbours(graph, present)
        for k in present:
            mixed = corrected[k].copy()
            for j in near[k]:
                weight = 1 / (1 + max(len(near[k]), len(near[j])))
                mixed += weight * (corrected[j] - corrected[k])
            z[k, subset] = mixed
            if near[k]:
                heard[k, subset] = 1
        perceptron.assert_clients(state.clients, clients)
        np.testing.assert_allclose(state.server.z, z, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state.server.s, s, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(state.server.known, heard)
        # Whatever the graph, and whoever takes part.
        np.testing.assert_allclose(z.sum(0), s.sum(0), atol=1e-8)
    assert pulls > 10


@pytest.mark.slow
def test_without_pull_it_is_local_training(trained_alone):
    _, *states = played(built(rho=0.0))
    for state, plain in zip(states, trained_alone[1:], strict=True):
        toy.assert_same(state.clients, plain.clients)


@pytest.mark.slow
def test_the_first_round_has_no_consensus(pulled, trained_alone):
    _, first, second, _ = pulled
    toy.assert_same(first.clients, trained_alone[1].clients)
    moved = second.clients["head"]["kernel"]
    assert np.abs(moved - trained_alone[2].clients["head"]["kernel"]).max() > 1e-2


@pytest.mark.slow
def test_who_never_hears_of_anybody_trains_alone():
    """One client a round: no graph has an edge, and z is its own s."""
    *_, state = played(built(rho=5.0), cohort=1)
    *_, plain = played(alone(TASK, NOISY), cohort=1)
    toy.assert_same(state.clients, plain.clients)
    toy.assert_close(state.server.z, state.server.s)
    assert np.abs(state.server.s).max() > 0
    assert not state.server.known.any()


def test_where_all_hear_all_the_consensus_is_the_mean(pulled):
    server = pulled[-1].server
    assert np.ptp(server.s, axis=0).max() > 0.1
    wanted = np.broadcast_to(np.mean(server.s, 0), server.z.shape)
    np.testing.assert_allclose(server.z, wanted, atol=1e-6)


def gossip_of(graph, mask):
    """(server, uploads, server after) of 4 clients, 3 of the 6 examples."""
    rng = np.random.default_rng(5)
    z, s = rng.random((2, 4, ROWS, 3)).astype(np.float32)
    z += (s - z).mean(0)
    subset = jnp.array([4, 0, 3])
    server = Server(jnp.asarray(z), jnp.asarray(s), jnp.zeros((4, ROWS)), subset)
    uploads = jnp.asarray(rng.random((4, 3, 3)), jnp.float32)
    method = built(graph=graph, subset=3)
    return server, uploads, jax.jit(method.aggregate)(server, uploads, toy.cohort(mask))


@pytest.mark.parametrize("graph", ["complete", "ring"])
def test_mixing_keeps_the_sum_and_touches_no_others(graph):
    before, uploads, after = gossip_of(graph, [1.0, 1, 0, 1])
    np.testing.assert_allclose(after.z.sum(0), after.s.sum(0), atol=1e-5)
    for old, new in zip(before[:2], after[:2], strict=True):
        np.testing.assert_array_equal(new[2], old[2])
        np.testing.assert_array_equal(new[:, [1, 2, 5]], old[:, [1, 2, 5]])
        assert np.abs(new - old)[[0, 1, 3]][:, [0, 3, 4]].max(-1).min() > 0
    np.testing.assert_array_equal(after.s[0, np.array([4, 0, 3])], uploads[0])
    np.testing.assert_array_equal(after.known.sum(1), [3, 3, 0, 3])


def test_examples_of_a_round_are_drawn_anew(pulled):
    drawn = np.array([state.server.subset for state in pulled])
    assert drawn.shape == (4, 4)
    assert ((drawn >= 0) & (drawn < ROWS)).all()
    assert all(len(set(subset)) == 4 for subset in drawn.tolist())
    assert len({tuple(sorted(subset)) for subset in drawn.tolist()}) > 1


def test_a_consensus_off_the_simplex_has_a_divergence():
    z = jnp.array([[1.3, -0.2, -0.1], [0.2, 0.3, 0.5]])
    a = np.random.default_rng(6).normal(size=(2, 3)).astype(np.float32)
    value, slope = jax.value_and_grad(lambda a: kl(z, a).sum())(jnp.asarray(a))
    p = perceptron.softmax(a)
    wanted = -np.log(p[0, 0]) + (z[1] * np.log(z[1] / p[1])).sum()
    assert float(value) == pytest.approx(float(wanted), rel=1e-3)
    np.testing.assert_allclose(slope, slope_of_distance("kl", p, z), atol=1e-5)


@pytest.mark.slow
def test_a_pull_of_zero_moves_statistics_once_and_keeps_dropout_in_the_head():
    body = nn.Sequential([nn.Dense(4), nn.BatchNorm(), nn.relu, models.Dropout(0.2)])
    head = nn.Sequential([models.Dropout(0.5), nn.Dense(3)])
    task = models.task(models.Network(body, head), (3,))
    w = task.init(jax.random.key(3))
    numbers = jnp.arange(ROWS)
    known = Message(jnp.full((ROWS, 3), 1 / 3), jnp.ones(ROWS), numbers)
    turn = toy.turn(jax.random.key(5), steps=4)._replace(public=PUBLIC)
    data = toy.one(TRAIN, 1)
    method = d_distillation(task, NOISY, rho=0.0, num_public=ROWS)
    pulled = jax.jit(method.train)(turn, known, w, data)
    plain = jax.jit(alone(task, NOISY).train)(turn, (), w, data)
    toy.assert_close(pulled[0], plain[0], 1e-6)
    drawn = d_distillation(task, NOISY, rho=1.0, num_public=ROWS)
    moved = jax.jit(drawn.train)(turn, known, w, data)
    gap = (
        moved[0]["head"]["layers_1"]["kernel"] - plain[0]["head"]["layers_1"]["kernel"]
    )
    assert np.abs(gap).max() > 1e-4


def test_steps_move_the_model_and_what_it_sends_whatever_the_servers_labels():
    w = TASK.init(jax.random.key(3))
    message = Message(jnp.full((ROWS, 3), 1 / 3), jnp.ones(ROWS), jnp.arange(ROWS))
    train = jax.jit(built().train)

    def sent(steps, public=PUBLIC):
        turn = toy.turn(steps=steps)._replace(public=public)
        return train(turn, message, w, toy.one(TRAIN, 1))[:2]

    ends = [sent(steps) for steps in (0, 1, 4)]
    wanted = jax.nn.softmax(TASK.predict(w, Batch.full(PUBLIC.examples.x)))
    np.testing.assert_allclose(ends[0][1], wanted, rtol=1e-5)
    assert np.abs(ends[0][1] - ends[1][1]).max() > 1e-3
    assert np.abs(ends[1][1] - ends[2][1]).max() > 1e-3
    pool = Examples(PUBLIC.examples.x, (PUBLIC.examples.y + 1) % 3)
    toy.assert_same(sent(4, PUBLIC._replace(examples=pool)), ends[2])


def test_a_client_outside_the_run_has_no_known_decisions(pulled):
    server = pulled[-1].server
    for client_id, wanted in ((7, 1), (8, 0)):
        message = built().message(toy.turn(client_id=client_id), server, ())
        assert message.known.any() == wanted


def test_a_server_without_examples_is_refused():
    with pytest.raises(ValueError, match="d_distillation needs examples"):
        d_distillation(TASK, NOISY, num_public=0)


def test_what_is_sent_knows_no_architecture():
    one, other = perceptron.exchanges_of_two_architectures(d_distillation)
    assert one == other
