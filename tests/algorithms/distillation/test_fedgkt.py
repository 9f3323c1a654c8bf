import jax
import jax.numpy as jnp
import numpy as np
import pytest

import perceptron
from pfljax.algorithms.distillation._sent_examples import SentExamples
from pfljax.algorithms.distillation.fedgkt import Answers, Pair, fedgkt, soft_kl
from pfljax.algorithms.local import local as alone
from pfljax.conformance import Case, toy
from pfljax.core.optimizers import sgd
from pfljax.core.types import Batch, Local

MOST = max(toy.SIZES)
# For 20 examples 3 logits down, and whether there are any; 4 features, 3 logits and a
# label up, and the client's turn. They are no change of anything: law "2 origin" does
# not apply. That steps matter is tested below.
SENT = (4 * (MOST * 3 + 1), 4 * (MOST * (4 + 3 + 1) + 1))
CONFORMANCE = [Case("fedgkt", bytes=SENT, sends_statistics=True)]

ALPHA, T, RATE = 0.7, 3.0, 0.2
TASK = toy.classifier()
TRAIN, _ = toy.ragged()
NOISY = Local(0.1, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-2))


def built(local=NOISY, **options):
    options = {"hidden": 4, "depth": 1, "max_examples": MOST} | options
    return fedgkt(TASK, local, **options)


def played(method):
    """The states after 0, 1 and 2 rounds of noisy minibatches."""
    return toy.run_rounds(method, TASK, NOISY, TRAIN, 2)[0]


@pytest.fixture(scope="module")
def trained_alone():
    return played(alone(TASK, NOISY))


@pytest.fixture(scope="module")
def trained():
    return played(built(alpha=5.0))


def slope_of_gap(target, a):
    """Of T^2 KL(target || a), the mean over examples, in the logits a."""
    return T * (perceptron.softmax(a / T) - perceptron.softmax(target / T)) / len(a)


@pytest.mark.parametrize("known", [0.0, 1.0])
def test_a_client_against_numpy(known):
    """Two steps on all examples towards the answers, and what it sends after them."""
    x, y = perceptron.examples(1)
    s = np.random.default_rng(1).normal(size=(MOST, 3)).astype(np.float32)
    params = TASK.init(jax.random.key(3))
    message = Answers(s=jnp.asarray(s), known=jnp.float32(known))
    method = built(perceptron.FULL, alpha=ALPHA, max_examples=MOST + 3)
    message = message._replace(s=jnp.pad(message.s, ((0, 3), (0, 0))))
    turn, data = toy.turn(steps=2, client_id=1), toy.one(TRAIN, 1)
    after, upload, metrics = jax.jit(method.train)(turn, message, params, data)
    w = perceptron.weights(params)
    losses = []
    for _ in range(2):
        a = perceptron.logits(w, perceptron.features(w, x))
        losses.append(-np.log(perceptron.softmax(a))[np.arange(len(y)), y].mean())
        pull = known * ALPHA * slope_of_gap(s[: len(y)], a)
        w = perceptron.stepped(w, x, perceptron.cross_entropy_slope(a, y) + pull)
    for leaf, wanted in zip(perceptron.weights(after), w, strict=True):
        np.testing.assert_allclose(leaf, wanted, rtol=1e-4, atol=1e-5)
    z, count = perceptron.features(w, x), len(y)
    np.testing.assert_allclose(upload.features[:count], z, rtol=1e-4, atol=1e-5)
    sent = perceptron.logits(w, z)
    np.testing.assert_allclose(upload.logits[:count], sent, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(upload.labels[:count], y)
    assert not upload.features[count:].any()
    assert not upload.logits[count:].any()
    assert (upload.labels[count:] == -1).all()
    # Of the data alone, before each step.
    assert float(metrics["loss"]) == pytest.approx(np.mean(losses), rel=1e-4)


def server_batches(sent, order):
    """(client, examples of a batch) as the server meets them, in batches of 4."""
    for m in order:
        size = int((sent.labels[m] >= 0).sum())
        for start in range(0, size, 4):
            yield m, np.arange(start, min(start + 4, size))


def test_the_server_against_numpy():
    """Two epochs over 4 clients by their turns; one is absent, one has no full batch.

    The second of two rounds, so that the moments of the first matter.
    """
    rng = np.random.default_rng(2)
    sizes = np.array([6, 3, 5, 8])
    labels = np.where(np.arange(8) < sizes[:, None], rng.integers(0, 3, (4, 8)), -1)
    features = rng.normal(size=(4, 8, 4))
    logits = rng.normal(size=(4, 8, 3))
    turns = np.array([0.6, 0.2, 0.1, 0.9])
    sent = SentExamples(
        jnp.float32(features), jnp.float32(logits), jnp.float32(labels), turns
    )
    local = Local(RATE, batch_size=4, optimizer=sgd(0.9))
    method = built(local, alpha=ALPHA, server_epochs=2, max_examples=8)
    before = method.init(TASK.init(jax.random.key(3)), 6, jax.random.key(4))
    cohort = toy.cohort([1.0, 1, 0, 1], 6)._replace(ids=jnp.array([5, 0, 1, 3]))
    aggregate = jax.jit(method.aggregate)
    after = aggregate(aggregate(before, sent, cohort), sent, cohort)
    g = perceptron.weights(before.g)
    velocity = [np.zeros_like(leaf) for leaf in g]
    for _ in range(4):
        answers = np.zeros((6, 8, 3))
        for m, batch in server_batches(sent, [1, 0, 3]):
            h, z, y = features[m, batch], logits[m, batch], labels[m, batch]
            a = perceptron.logits(g, perceptron.features(g, h))
            answers[cohort.ids[m], batch] = a
            slope = slope_of_gap(z, a) + ALPHA * perceptron.cross_entropy_slope(a, y)
            moved = perceptron.stepped(g, h, slope, rate=1.0)
            slopes = [old - new for old, new in zip(g, moved, strict=True)]
            pairs = zip(velocity, slopes, strict=True)
            velocity = [0.9 * v + slope for v, slope in pairs]
            g = [w - RATE * v for w, v in zip(g, velocity, strict=True)]
    for leaf, wanted in zip(perceptron.weights(after.g), g, strict=True):
        np.testing.assert_allclose(leaf, wanted, rtol=1e-3, atol=1e-4)
    for m in (0, 1, 3):
        k = int(cohort.ids[m])
        found = after.answers.s[k, : sizes[m]]
        np.testing.assert_allclose(found, answers[k, : sizes[m]], rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(after.answers.known, [1, 0, 0, 1, 0, 1])
    assert not after.answers.s[np.array([1, 2, 4])].any()


def test_the_first_round_has_no_answers(trained, trained_alone):
    _, first, second = trained
    toy.assert_same(first.clients, trained_alone[1].clients)
    moved = second.clients["head"]["kernel"]
    assert np.abs(moved - trained_alone[2].clients["head"]["kernel"]).max() > 1e-2


@pytest.mark.slow
def test_without_distillation_clients_train_alone(trained, trained_alone):
    _, first, second = played(built(alpha=0.0))
    toy.assert_same(first.clients, trained_alone[1].clients)
    toy.assert_same(second.clients, trained_alone[2].clients)
    # The server learns of their logits still.
    before, after = (state.server.g[-1].kernel for state in (first, second))
    assert np.abs(after - before).max() > 1e-3


@pytest.mark.slow
def test_a_server_that_learns_nothing_answers_nobody(trained_alone):
    first, _, end = played(built(alpha=5.0, server_epochs=0))
    toy.assert_same(end.clients, trained_alone[2].clients)
    toy.assert_same(end.server, first.server)


def test_a_client_is_sent_the_answers_to_its_own_examples(trained):
    server = trained[-1].server
    message = built().message(toy.turn(client_id=2), server, ())
    toy.assert_same(message.s, server.answers.s[2])
    assert server.answers.known.all()
    # One that is not of the run has none, though the server has those of the last.
    unseen = built().message(toy.turn(client_id=8), server, ())
    assert not unseen.s.any()
    assert not unseen.known


def test_a_teacher_that_says_the_same_teaches_nothing():
    a = jnp.asarray(np.random.default_rng(3).normal(size=(4, 3)), jnp.float32)
    batch = Batch.full(jnp.zeros((4, 1)))
    slope = jax.grad(soft_kl, 1)(a, a, batch, T)
    np.testing.assert_allclose(slope, 0, atol=1e-6)


def test_at_high_temperatures_the_slope_is_that_of_a_square():
    """T^2 KL -> the mean square of what logits differ by, whatever T; / K, centred."""
    rng = np.random.default_rng(4)
    s, a = rng.normal(size=(2, 4, 3)).astype(np.float32)
    batch = Batch.full(jnp.zeros((4, 1)))
    gap = a - s
    wanted = (gap - gap.mean(1, keepdims=True)) / 3 / 4
    for temperature in (100.0, 300.0):
        slope = jax.grad(soft_kl, 1)(s, jnp.asarray(a), batch, temperature)
        np.testing.assert_allclose(slope, wanted, rtol=0.05, atol=2e-3)


def test_the_evaluated_model_is_the_servers_network_on_the_clients_body():
    method = built()
    w = TASK.init(jax.random.key(3))
    server = method.init(w, 2, jax.random.key(4))
    evaluated = method.personal(toy.turn(), server, w, None)
    assert isinstance(evaluated, Pair)
    x, _ = perceptron.examples(1)
    z = perceptron.features(perceptron.weights(w), x)
    g = perceptron.weights(server.g)
    wanted = perceptron.logits(g, perceptron.features(g, z))
    logits = method.predict(evaluated, Batch.full(np.float32(x)))
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_rate_of_the_server_is_its_own():
    still = played(built(server_lr=0.0))
    toy.assert_same(still[-1].server.g, still[0].server.g)
    assert still[-1].server.answers.known.all()


def test_what_is_sent_knows_no_architecture():
    one, other = perceptron.exchanges_of_two_architectures(fedgkt)
    assert one == other
