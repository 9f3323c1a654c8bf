import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms._affinity import Models
from pfljax.algorithms.multi_task.fedfomo import (
    Message,
    Server,
    choose,
    compute_gains,
    fedfomo,
    mix,
)
from pfljax.conformance import Case, toy
from pfljax.core.types import ClientData, Examples, Local


def sent(count):
    """Models and who they are of down; a model, gains and whose they are up."""
    return count * (toy.WHOLE + 4), toy.WHOLE + count * 8


CONFORMANCE = [
    Case("fedfomo", bytes=sent(5)),
    Case("fedfomo", {"candidates": 99, "explore": 0.5}, bytes=sent(7)),
]

TASK = toy.quadratic()
KEY = jax.random.key(0)


def loss(k, w):
    return toy.A[k] / 2 * ((w - toy.B[k]) ** 2).sum()


def test_fedfomo_against_numpy():
    """Each client is sent all others that have sent."""
    states, drawn = toy.run_quadratic(fedfomo, rounds=5)
    first = toy.flat(states[0].clients)[0]
    models, heard, total = np.tile(first, (4, 1)), set(), np.zeros((4, 4))
    helped = 0
    for ids, state in zip(drawn, states[1:], strict=True):
        new = {}
        for k in ids:
            gains = {}
            for j in heard - {k}:
                distance = np.linalg.norm(models[j] - models[k])
                gain = (loss(k, models[k]) - loss(k, models[j])) / (distance + 1e-5)
                gains[j] = gain
                total[k, j] += gain
            begin = models[k]
            positive = {j: gain for j, gain in gains.items() if gain > 0}
            for j, gain in positive.items():
                share = gain / sum(positive.values())
                begin = begin + share * (models[j] - models[k])
            helped += len(positive)
            new[k] = toy.descend(begin, lambda x, k=k: toy.gradient(k, x))
        for k, w in new.items():
            models[k] = w
        heard |= set(new)
        for known in (state.server.models.params, state.clients):
            found = toy.flat(known)
            np.testing.assert_allclose(found, models, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state.server.gains, total, rtol=1e-3, atol=1e-4)
    assert helped > 1
    assert (total < 0).any()


def server_of(gains, heard):
    """A server of six clients."""
    params = toy.unflat(np.arange(18.0).reshape(6, 3))
    names = jax.random.bits(jax.random.key(8), (6,))
    return Server(Models(params, jnp.asarray(heard)), jnp.asarray(gains), names)


GAINS = np.zeros((6, 6), np.float32)
GAINS[2] = [1, -1, 99, 3, 0, 50]
HEARD = np.array([1.0, 1, 1, 1, 1, 0])  # client 5 has sent nothing


def test_the_best_that_have_sent_are_sent():
    server = server_of(GAINS, HEARD)
    order = choose(toy.turn(KEY, client_id=2), server, 0.0)
    np.testing.assert_array_equal(order[:4], [3, 0, 4, 1])
    turn = toy.turn(KEY, client_id=2, num_clients=6)
    message = fedfomo(TASK, toy.full_batch()).message(turn, server, ())
    # Five places, and four others that have sent.
    np.testing.assert_array_equal(message.ids, [3, 0, 4, 1, 6])
    np.testing.assert_array_equal(toy.flat(message.models)[:2, 0], [9, 0])


def first_of(gains, explore, count=300):
    """How often each client is client 2's first candidate, in `count` rounds."""
    server = server_of(gains, HEARD)
    keys = jax.random.split(KEY, count)

    def one(key):
        return choose(toy.turn(key, client_id=2), server, explore)[0]

    return np.bincount(jax.jit(jax.vmap(one))(keys), minlength=6) / count


def test_candidates_that_are_alike_come_in_random_order():
    found = first_of(np.zeros((6, 6), np.float32), 0.0)
    np.testing.assert_allclose(found, [0.25, 0.25, 0, 0.25, 0.25, 0], atol=0.1)


def test_exploring_takes_any():
    np.testing.assert_allclose(first_of(GAINS, 0.0), [0, 0, 0, 1, 0, 0])
    wanted = [0.1, 0.1, 0, 0.7, 0.1, 0]
    np.testing.assert_allclose(first_of(GAINS, 0.4), wanted, atol=0.1)


def test_a_client_trains_on_its_own_part_and_evaluates_on_the_other():
    """No step uses the second part, and no evaluation the first."""
    examples = np.zeros((10, 4), np.float32)
    examples[:, 0] = 1
    examples[:8, 1:] = [1, 2, 3]
    examples[8:, 1:] = [-4, 0, 5]
    pool = Examples(jnp.asarray(examples), jnp.zeros(10, jnp.int32))
    data = ClientData(pool, jnp.int32(0), jnp.int32(10))
    # Nine steps of a budget of three epochs in batches of four: two epochs too many.
    local = Local(0.1, batch_size=4, epochs=3)
    method = fedfomo(TASK, local)
    w = toy.unflat([0.0, 0, 0])
    near = np.array([[-4.0, 0, 5], [1, 2, 3]])
    message = Message(toy.unflat(near), jnp.array([1, 3]))
    _, upload, _ = method.train(toy.turn(KEY, steps=9), message, w, data)
    square = (np.float64(near) ** 2).sum(1)
    before = (examples[9, 1:] ** 2).sum() / 2
    after = ((near - examples[9, 1:]) ** 2).sum(1) / 2
    gains = (before - after) / (np.sqrt(square) + 1e-5)
    np.testing.assert_allclose(upload.gains, gains, rtol=1e-4)
    begin = near.T @ np.maximum(gains, 0) / np.maximum(gains, 0).sum()
    wanted = examples[0, 1:] + 0.9**6 * (begin - examples[0, 1:])
    np.testing.assert_allclose(toy.flat(upload.w), wanted, rtol=1e-4)


def test_a_place_that_nobody_fills_helps_nobody():
    """However good the model that happens to lie there."""
    method = fedfomo(TASK, toy.full_batch())
    data = toy.one(toy.quadratic_clients(), 1)
    ideal = toy.unflat(toy.B[1][None])
    w, turn = toy.unflat([9.0, 9, 9]), toy.turn(KEY, steps=1)

    def trained(client_id):
        return method.train(turn, Message(ideal, jnp.array([client_id])), w, data)[1]

    nobody, somebody = trained(turn.num_clients), trained(0)
    wanted = toy.descend(toy.flat(w), lambda v: toy.gradient(1, v), 1)
    np.testing.assert_allclose(toy.flat(nobody.w), wanted, rtol=1e-6)
    assert nobody.gains == 0
    np.testing.assert_allclose(toy.flat(somebody.w), toy.B[1], atol=1e-5)
    assert somebody.gains > 0


def test_whom_nobody_helps_keeps_its_own_model():
    w, models = toy.unflat([1.0, 2, 3]), toy.unflat(np.eye(3))
    toy.assert_same(mix(w, models, jnp.array([0.0, -2, -1])), w)
    found = mix(w, models, jnp.array([0.0, 3, 1]))
    np.testing.assert_allclose(toy.flat(found), [0, 0.75, 0.25], rtol=1e-6)


def test_an_equal_model_gains_nothing():
    w = toy.unflat([1.0, 2, 3])
    equal = jax.tree.map(lambda leaf: leaf[None], w)
    found = compute_gains(lambda v: jnp.sum(v["body"] ** 2), w, equal)
    np.testing.assert_array_equal(found, 0)


@pytest.mark.parametrize("holdout", [0.0, 1.0])
def test_examples_are_needed_on_either_side(holdout):
    expected = r"^fedfomo: holdout is .*; expected a number > 0 and below 1"
    with pytest.raises(ValueError, match=expected):
        fedfomo(TASK, toy.full_batch(), holdout=holdout)
