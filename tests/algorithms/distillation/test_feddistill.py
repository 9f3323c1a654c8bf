import jax
import jax.numpy as jnp
import numpy as np
import pytest

import perceptron
from pfljax.algorithms._prototypes import Prototypes
from pfljax.algorithms.distillation.feddistill import DISTANCES, feddistill, towards
from pfljax.algorithms.local import local as alone
from pfljax.conformance import Case, toy
from pfljax.core.optimizers import sgd
from pfljax.core.types import Batch, ClientData, Examples, Local

SENT = 4 * (3 * 3 + 3)  # 3 logits and a count for each of 3 classes
# Without a step it sends nothing, and the server keeps what it had: law "2 origin" does
# not apply.
CONFORMANCE = [Case("feddistill", bytes=(SENT, SENT), sends_statistics=True)]

LAM = 0.8
TASK = toy.classifier()
TRAIN, _ = toy.ragged()
NOISY = Local(0.1, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-2))


def played(method, train=TRAIN):
    """The states after 0, 1 and 2 rounds of noisy minibatches."""
    return toy.run_rounds(method, TASK, NOISY, train, 2)[0]


@pytest.fixture(scope="module")
def trained_alone():
    return played(alone(TASK, NOISY))


def slope_of_distance(distance, a, target):
    """Of each example's distance, in its logits."""
    if distance == "mse":
        return 2 * (a - target) / 3
    return perceptron.softmax(a) - perceptron.softmax(target)


def trained(w, x, y, target, known, distance):
    """(the weights after two steps on all examples, logits before each by class)."""
    seen = []
    for _ in range(2):
        a = perceptron.logits(w, perceptron.features(w, x))
        seen.append(a)
        gap = slope_of_distance(distance, a, target[y])
        # A class that nobody else has sent adds 0 to a mean over all examples.
        pull = LAM * gap * known[y][:, None] / len(y)
        slope = perceptron.cross_entropy_slope(a, y) + pull
        w = perceptron.stepped(w, x, slope)
    return w, *perceptron.by_class(np.concatenate(seen), np.tile(y, 2))


def of_others(mean, count, k):
    """The mean of the tables but that of k, and which classes it has."""
    others = [j for j in range(len(mean)) if j != k]
    target, known = np.zeros((3, 3)), np.zeros(3)
    for label in range(3):
        sent = [mean[j, label] for j in others if count[j, label]]
        if sent:
            target[label], known[label] = np.mean(sent, 0), 1
    return target, known


@pytest.mark.parametrize(
    "distance", ["softmax_ce", pytest.param("mse", marks=pytest.mark.slow)]
)
def test_feddistill_against_numpy(distance):
    """Two steps on all examples, by 5 of 8 clients a round; some lack a class."""
    method = feddistill(TASK, perceptron.FULL, lam=LAM, distance=distance)
    states, _ = toy.run_rounds(method, TASK, perceptron.FULL, TRAIN, 3, cohort=5)
    clients = [perceptron.of_client(states[0].clients, k) for k in range(8)]
    mean, count = np.zeros((8, 3, 3)), np.zeros((8, 3))
    for state in states[1:]:
        old_mean, old_count = mean.copy(), count.copy()
        for k in np.asarray(state.cohort):
            x, y = perceptron.examples(k)
            target = of_others(old_mean, old_count, k)
            clients[k], mean[k], count[k] = trained(clients[k], x, y, *target, distance)
        perceptron.assert_clients(state.clients, clients)
        np.testing.assert_allclose(state.server.mean, mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(state.server.count, count)


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_distances_and_their_slopes(distance):
    """Three examples, of which the second has a class that nobody sent."""
    rng = np.random.default_rng(4)
    a, mean = rng.normal(size=(2, 3, 3)).astype(np.float32)
    y, mask = np.array([2, 1, 0]), np.ones(3)
    table = Prototypes(jnp.asarray(mean), jnp.array([1.0, 0, 1]))
    batch = Batch(jnp.zeros((3, 1)), jnp.asarray(y), jnp.asarray(mask))

    def pull(logits):
        return towards(table, logits, batch, DISTANCES[distance])

    value, slope = jax.value_and_grad(pull)(jnp.asarray(a))
    p, q = perceptron.softmax(a), perceptron.softmax(mean[y])
    losses = {
        "softmax_ce": -(q * np.log(p)).sum(1),
        "kl": (q * np.log(q / p)).sum(1),
        "mse": ((a - mean[y]) ** 2).mean(1),
    }[distance]
    known = np.array([1, 0, 1])
    assert float(value) == pytest.approx((known * losses).sum() / 3, rel=1e-5)
    wanted = slope_of_distance(distance, a, mean[y]) * known[:, None] / 3
    np.testing.assert_allclose(slope, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("distance", DISTANCES)
def test_a_class_that_nobody_sent_pulls_nothing(distance):
    nothing = Prototypes(jnp.zeros((3, 3)), jnp.zeros(3))
    batch = Batch.full(jnp.zeros((3, 1)), jnp.arange(3))

    def pull(logits):
        return towards(nothing, logits, batch, DISTANCES[distance])

    value, slope = jax.value_and_grad(pull)(jnp.full((3, 3), 50.0))
    assert float(value) == 0
    np.testing.assert_array_equal(slope, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "distance", ["softmax_ce", pytest.param("mse", marks=pytest.mark.slow)]
)
def test_without_pull_it_is_local_training(trained_alone, distance):
    _, *states = played(feddistill(TASK, NOISY, lam=0.0, distance=distance))
    for state, plain in zip(states, trained_alone[1:], strict=True):
        toy.assert_same(state.clients, plain.clients)


def test_the_first_round_has_no_targets(trained_alone):
    _, first, second = played(feddistill(TASK, NOISY, lam=5.0))
    toy.assert_same(first.clients, trained_alone[1].clients)
    moved = second.clients["head"]["kernel"]
    assert np.abs(moved - trained_alone[2].clients["head"]["kernel"]).max() > 1e-2


def test_one_client_alone_is_never_its_own_teacher():
    """Without a target it trains as in the first round: as local training."""
    tables = Prototypes(jnp.ones((1, 3, 3)), jnp.full((1, 3), 7.0))
    message = feddistill(TASK, NOISY).message(toy.turn(), tables, ())
    toy.assert_same(message, Prototypes(jnp.zeros((3, 3)), jnp.zeros(3)))


def test_the_server_keeps_what_was_not_sent():
    rng = np.random.default_rng(2)
    before, sent = rng.normal(size=(2, 4, 3, 3)).astype(np.float32)
    tables = Prototypes(jnp.asarray(before), jnp.full((4, 3), 5.0))
    uploads = Prototypes(jnp.asarray(sent[:3]), jnp.array([[2.0, 0, 1]] * 3))
    cohort = toy.cohort([1.0, 0, 1])._replace(ids=jnp.array([3, 1, 0]))
    after = feddistill(TASK, NOISY).aggregate(tables, uploads, cohort)
    wanted = before.copy()
    wanted[3, [0, 2]] = sent[0, [0, 2]]
    wanted[0, [0, 2]] = sent[2, [0, 2]]
    np.testing.assert_array_equal(after.mean, wanted)
    np.testing.assert_array_equal(after.count[:, 0], [2, 5, 5, 2])
    np.testing.assert_array_equal(after.count[:, 1], 5)


def test_a_row_of_a_class_that_nobody_else_has_weakens_the_pull():
    """Of two examples, one has a target: its pull is half of that of a batch of one."""
    target = Prototypes(jnp.array([[4.0, 0, 0], [9.0] * 3, [9.0] * 3]), jnp.eye(3)[0])
    w = TASK.init(jax.random.key(3))
    method = feddistill(TASK, perceptron.FULL)
    penalties = []
    for size in (1, 2):
        pool = Examples(jnp.ones((2, 3)), jnp.array([0, 1]))
        data = ClientData(pool, jnp.int32(0), jnp.int32(size))
        _, _, metrics = method.train(toy.turn(), target, w, data)
        penalties.append(float(metrics["penalty"]))
    assert penalties[0] == pytest.approx(2 * penalties[1]) != 0
    leaves = perceptron.weights(w)
    a = perceptron.logits(leaves, perceptron.features(leaves, np.ones((1, 3))))
    wanted = perceptron.softmax(np.array([4.0, 0, 0]))
    wanted = -wanted @ np.log(perceptron.softmax(a[0]))
    assert penalties[0] == pytest.approx(wanted, rel=1e-5)


def test_what_is_sent_knows_no_architecture():
    one, other = perceptron.exchanges_of_two_architectures(feddistill)
    assert one == other
