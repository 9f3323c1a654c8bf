import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import perceptron
from pfljax import models
from pfljax.algorithms._prototypes import Nearest, Prototypes
from pfljax.algorithms.distillation.fedproto import fedproto
from pfljax.algorithms.local import local as alone
from pfljax.conformance import Case, toy
from pfljax.core.optimizers import sgd
from pfljax.core.types import Batch, Local

SENT = 4 * (3 * 4 + 3)  # a vector of 4 features and a count for each of 3 classes
# Without a step it would send means of its examples, which `origin` cannot know:
# law "2 origin" does not apply.
CONFORMANCE = [
    Case("fedproto", bytes=(SENT, SENT), sends_statistics=True),
    Case("fedproto", {"predict_by": "head"}, bytes=(SENT, SENT), sends_statistics=True),
]

LAM = 0.8
TASK = toy.classifier()
TRAIN, _ = toy.ragged()
NOISY = Local(0.1, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-2))


def played(method):
    """The states after 0, 1 and 2 rounds of noisy minibatches."""
    return toy.run_rounds(method, TASK, NOISY, TRAIN, 2)[0]


@pytest.fixture(scope="module")
def trained_alone():
    return played(alone(TASK, NOISY))


def trained(w, x, y, known, count):
    """[b, W, c, V] after two steps on all examples, and the prototypes after them."""
    for _ in range(2):
        z = perceptron.features(w, x)
        slope = perceptron.cross_entropy_slope(perceptron.logits(w, z), y)
        mean, own = perceptron.by_class(z, y)
        of_z = np.zeros_like(z)
        for j in range(3):
            if own[j] and count[j]:
                gap = mean[j] - known[j]
                of_z[y == j] = LAM * gap / np.linalg.norm(gap) / own[j]
        w = perceptron.stepped(w, x, slope, of_z)
    return w, *perceptron.by_class(perceptron.features(w, x), y)


def test_fedproto_against_numpy():
    """Two steps on all examples, by 5 of 8 clients a round; some lack a class."""
    method = fedproto(TASK, perceptron.FULL, lam=LAM)
    states, _ = toy.run_rounds(method, TASK, perceptron.FULL, TRAIN, 3, cohort=5)
    clients = [perceptron.of_client(states[0].clients, k) for k in range(8)]
    known, count = np.zeros((3, 4)), np.zeros(3)
    for state in states[1:]:
        total, numbers = np.zeros((3, 4)), np.zeros(3)
        for k in np.asarray(state.cohort):
            x, y = perceptron.examples(k)
            clients[k], mean, own = trained(clients[k], x, y, known, count)
            total += own[:, None] * mean
            numbers += own
        assert numbers.all()
        known, count = total / numbers[:, None], numbers
        perceptron.assert_clients(state.clients, clients)
        np.testing.assert_allclose(state.server.mean, known, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(state.server.count, count)


@pytest.mark.slow
def test_without_pull_it_is_local_training(trained_alone):
    _, *states = played(fedproto(TASK, NOISY, lam=0.0))
    for state, plain in zip(states, trained_alone[1:], strict=True):
        toy.assert_same(state.clients, plain.clients)


@pytest.mark.slow
def test_the_first_round_has_no_prototypes(trained_alone):
    _, first, second = played(fedproto(TASK, NOISY, lam=5.0))
    toy.assert_same(first.clients, trained_alone[1].clients)
    moved = second.clients["body"]["layers_1"]["kernel"]
    plain = trained_alone[2].clients["body"]["layers_1"]["kernel"]
    assert np.abs(moved - plain).max() > 1e-2


@pytest.mark.slow
def test_a_pull_of_zero_moves_statistics_once_and_keeps_dropout_in_the_head():
    body = nn.Sequential([nn.Dense(4), nn.BatchNorm(), nn.relu, models.Dropout(0.2)])
    head = nn.Sequential([models.Dropout(0.5), nn.Dense(3)])
    task = models.task(models.Network(body, head), (3,))
    w = task.init(jax.random.key(3))
    known = Prototypes(jnp.ones((3, 4)), jnp.ones(3))
    turn = toy.turn(jax.random.key(5), steps=4)
    data = toy.one(TRAIN, 1)
    pulled = jax.jit(fedproto(task, NOISY, lam=0.0).train)(turn, known, w, data)
    plain = jax.jit(alone(task, NOISY).train)(turn, (), w, data)
    toy.assert_close(pulled[0], plain[0], 1e-6)


def stacked(mean, count):
    """Uploads of 3 clients: class 0 is had by two, class 1 by the silent one alone."""
    return Prototypes(jnp.asarray(mean), jnp.asarray(count))


def test_who_lacks_a_class_or_does_not_report_has_no_part_in_its_prototype():
    rng = np.random.default_rng(3)
    mean = rng.normal(size=(3, 3, 4)).astype(np.float32)
    uploads = stacked(mean, [[2.0, 0, 0], [6, 0, 1], [50, 7, 0]])
    before = stacked(rng.normal(size=(3, 4)).astype(np.float32), [1.0, 9, 0])
    after = fedproto(TASK, NOISY).aggregate(before, uploads, toy.cohort([1.0, 1, 0]))
    wanted = (2 * mean[0, 0] + 6 * mean[1, 0]) / 8
    np.testing.assert_allclose(after.mean[0], wanted, rtol=1e-5)
    np.testing.assert_array_equal(after.mean[1], before.mean[1])
    np.testing.assert_allclose(after.mean[2], mean[1, 2], rtol=1e-6)
    np.testing.assert_array_equal(after.count, [8, 9, 1])


def test_the_nearest_known_prototype_is_the_answer():
    method = fedproto(TASK, NOISY)
    w = TASK.init(jax.random.key(3))
    x, _ = perceptron.examples(1)
    z = perceptron.features(perceptron.weights(w), x)
    near = np.stack([z[0], z[5], z[9]]).astype(np.float32)
    known = Prototypes(jnp.asarray(near), jnp.array([1.0, 0, 1]))
    evaluated = method.personal(toy.turn(), known, w, None)
    logits = method.predict(evaluated, Batch.full(np.float32(x)))
    square = ((z[:, None] - near) ** 2).sum(-1)
    np.testing.assert_allclose(logits[:, [0, 2]], -square[:, [0, 2]], atol=1e-4)
    assert np.isfinite(logits).all()
    answers = np.argmax(np.asarray(logits), 1)
    np.testing.assert_array_equal(answers, 2 * np.argmin(square[:, [0, 2]], 1))
    assert len(set(answers)) == 2


def test_the_head_evaluates_as_local_training_does():
    method = fedproto(TASK, NOISY, lam=0.0, predict_by="head")
    w = TASK.init(jax.random.key(3))
    batch = Batch.full(np.float32(perceptron.examples(1)[0]))
    known = method.init(w, 2, jax.random.key(0))
    evaluated = method.personal(toy.turn(), known, w, None)
    toy.assert_same(method.predict(evaluated, batch), TASK.predict(w, batch))
    assert isinstance(fedproto(TASK, NOISY).personal(None, known, w, None), Nearest)


def test_the_loss_is_of_the_data_alone():
    method = fedproto(TASK, perceptron.FULL, lam=100.0)
    known = Prototypes(jnp.full((3, 4), 9.0), jnp.ones(3))
    w = TASK.init(jax.random.key(3))
    data = toy.one(TRAIN, 1)
    _, _, metrics = method.train(toy.turn(), known, w, data)
    x, y = perceptron.examples(1)
    batch = Batch.full(np.float32(x), y)
    assert float(metrics["loss"]) == pytest.approx(float(TASK.loss(w, batch, None)))


def test_what_is_sent_knows_no_architecture():
    one, other = perceptron.exchanges_of_two_architectures(fedproto)
    assert one == other
