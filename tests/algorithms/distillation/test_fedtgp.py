import jax
import jax.numpy as jnp
import numpy as np
import pytest

import perceptron
from pfljax.algorithms._prototypes import Prototypes
from pfljax.algorithms.distillation.fedtgp import (
    contrast,
    draw,
    fedtgp,
    generate,
    margin,
)
from pfljax.algorithms.local import local as alone
from pfljax.conformance import Case, toy
from pfljax.core.optimizers import sgd
from pfljax.core.types import Batch, Local

# Down 4 features of each of 3 classes; up as many, and which classes there are. What it
# would send without a step are means of its examples, which `origin` cannot know: law
# "2 origin" does not apply.
BYTES = 4 * (3 * 4), 4 * (3 * 4 + 3)
CONFORMANCE = [Case("fedtgp", bytes=BYTES, sends_statistics=True)]

LAM, TAU, SERVER_RATE = 0.8, 0.4, 0.3
TASK = toy.classifier()
TRAIN, _ = toy.ragged()
NOISY = Local(0.1, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-2))


def played(method, rounds=2):
    return toy.run_rounds(method, TASK, NOISY, TRAIN, rounds)[0]


def apart(a, b):
    """Differences [n, K, e] and distances [n, K]."""
    gap = a[:, None] - b
    return gap, np.sqrt((gap**2).sum(-1))


def through(server):
    """(v, hidden, G(v)) of [v, W, b, W', b']."""
    v, w, b, last_w, last_b = server
    hidden = np.maximum(v @ w + b, 0)
    return v, hidden, hidden @ last_w + last_b


def margin_of(means, labels):
    """The largest distance of two classes' centres, at most TAU."""
    centres = [means[labels == j].mean(0) for j in np.unique(labels)]
    return min(apart(np.array(centres), np.array(centres))[1].max(), TAU)


def server_step(server, means, labels, m):
    """[v, W, b, W', b'] after a step of eq. 10, its slopes by hand."""
    v, hidden, q = through(server)
    gap, distance = apart(means, q)
    own = perceptron.one_hot(labels)
    pull = -(perceptron.softmax(-distance - m * own) - own) / len(labels)
    of_q = -(pull / distance)[..., None] * gap
    of_q = of_q.sum(0)
    of_hidden = of_q @ server[3].T * (hidden > 0)
    slopes = [
        of_hidden @ server[1].T,
        v.T @ of_hidden,
        of_hidden.sum(0),
        hidden.T @ of_q,
        of_q.sum(0),
    ]
    return [a - SERVER_RATE * b for a, b in zip(server, slopes, strict=True)]


def trained(w, x, y, q):
    """[b, W, c, V] after two full-batch steps, and the means of features by class."""
    for _ in range(2):
        z = perceptron.features(w, x)
        slope = perceptron.cross_entropy_slope(perceptron.logits(w, z), y)
        mean, own = perceptron.by_class(z, y)
        of_z = np.zeros_like(z)
        for j in np.flatnonzero(own):
            gap = mean[j] - q[j]
            toward = gap / np.linalg.norm(gap) / own[j]
            of_z[y == j] = LAM * toward / (own > 0).sum()
        w = perceptron.stepped(w, x, slope, of_z)
    return w, *perceptron.by_class(perceptron.features(w, x), y)


def test_fedtgp_against_numpy():
    """Two steps on all examples, by 5 of 8 clients a round; the server takes three."""
    options = {"lam": LAM, "tau": TAU, "server_steps": 3, "server_lr": SERVER_RATE}
    method = fedtgp(TASK, perceptron.FULL, **options)
    states, _ = toy.run_rounds(method, TASK, perceptron.FULL, TRAIN, 2, cohort=5)
    clients = [perceptron.of_client(states[0].clients, k) for k in range(8)]
    server = perceptron.weights(states[0].server)
    margins = []
    for state in states[1:]:
        means, labels = [], []
        *_, q = through(server)
        for k in np.asarray(state.cohort):
            x, y = perceptron.examples(k)
            clients[k], mean, count = trained(clients[k], x, y, q)
            means.append(mean[count > 0])
            labels.append(np.flatnonzero(count))
        sent = np.concatenate(means), np.concatenate(labels)
        margins.append(margin_of(*sent))
        for _ in range(3):
            server = server_step(server, *sent, margins[-1])
        perceptron.assert_clients(state.clients, clients)
        for leaf, wanted in zip(perceptron.weights(state.server), server, strict=True):
            np.testing.assert_allclose(leaf, wanted, rtol=1e-4, atol=1e-5)
    assert min(margins) > 0.1


@pytest.mark.slow
def test_without_pull_it_is_local_training():
    pulled = played(fedtgp(TASK, NOISY, lam=0.0, server_steps=1))
    plain = played(alone(TASK, NOISY))
    toy.assert_same(pulled[1].clients, plain[1].clients)
    toy.assert_same(pulled[2].clients, plain[2].clients)


def test_the_first_round_is_pulled_to_prototypes_as_they_were_drawn():
    w = TASK.init(jax.random.key(3))
    data, turn = toy.one(TRAIN, 1), toy.turn(steps=3)
    ends = []
    for lam in (0.0, 5.0):
        method = fedtgp(TASK, NOISY, lam=lam)
        server = method.init(w, 4, jax.random.key(0))
        message = method.message(turn, server, w)
        ends.append(method.train(turn, message, w, data)[0]["body"]["layers_1"])
    assert np.abs(ends[0]["kernel"] - ends[1]["kernel"]).max() > 1e-2


UPLOADS = Prototypes(
    jnp.float32(np.random.default_rng(4).normal(size=(2, 3, 4))),
    jnp.array([[1.0, 0, 1], [1, 1, 1]]),
)
SERVER = draw(jax.random.key(2), 3, 4)


def aggregated(uploads=UPLOADS, mask=(1.0, 1), **options):
    options = {"server_steps": 2, "server_lr": 0.5} | options
    method = fedtgp(TASK, NOISY, **options)
    return method.aggregate(SERVER, uploads, toy.cohort(mask))


@pytest.mark.parametrize("frozen", [{"server_steps": 0}, {"server_lr": 0.0}])
def test_a_server_that_does_not_train_keeps_its_prototypes(frozen):
    toy.assert_same(aggregated(**frozen), SERVER)
    assert not np.allclose(aggregated().v, SERVER.v)


def test_without_margin_it_is_a_softmax_of_distances():
    """tau = 0: a step along the slope of eq. 6 by differences."""
    q = np.float64(generate(SERVER))
    means = np.float64(UPLOADS.mean).reshape(-1, 4)[[0, 2, 3, 4, 5]]
    labels = np.array([0, 2, 0, 1, 2])

    def loss(shift):
        _, distance = apart(means, q + shift)
        p = perceptron.softmax(-distance)
        return -np.log(p[np.arange(5), labels]).mean()

    # The last bias is added to all prototypes: its slope is that of a common shift.
    h = 1e-5
    slope = [(loss(h * e) - loss(-h * e)) / (2 * h) for e in np.eye(4)]
    after = aggregated(tau=0.0, server_steps=1)
    moved = np.asarray(after.network[1][1] - SERVER.network[1][1])
    np.testing.assert_allclose(moved, -0.5 * np.array(slope), rtol=1e-3, atol=1e-6)


def test_the_margin_is_the_largest_distance_of_two_classes_that_were_sent():
    weight = jnp.array([[1.0, 0, 1], [1, 1, 0]])
    means = np.zeros((2, 3, 4), np.float32)
    means[:, :, 0] = [[1, 99, 9], [3, -4, 99]]  # centres 2, -4 and 9
    assert float(margin(jnp.asarray(means), weight)) == pytest.approx(13)
    alone_sent = weight.at[:, 1:].set(0)
    assert float(margin(jnp.asarray(means), alone_sent)) == 0


def test_the_margin_is_at_most_tau():
    m = float(margin(UPLOADS.mean, UPLOADS.count))
    assert m > 1
    toy.assert_same(aggregated(tau=m), aggregated(tau=2 * m))
    assert not np.allclose(aggregated(tau=m).v, aggregated(tau=m / 2).v, atol=1e-4)


def test_the_loss_grows_with_the_margin():
    losses = []
    for m in (0.0, 1, 5):
        logits = np.asarray(contrast(UPLOADS.mean, generate(SERVER), m))
        entropies = -np.log(perceptron.softmax(logits))
        losses.append(entropies.reshape(2, 3, 3)[:, range(3), range(3)])
    assert (losses[0] < losses[1]).all()
    assert (losses[1] < losses[2]).all()


def test_who_lacks_a_class_or_does_not_report_teaches_nothing():
    noise = UPLOADS._replace(mean=UPLOADS.mean.at[0, 1].add(9).at[1].add(9))
    toy.assert_same(aggregated(mask=(1, 0)), aggregated(noise, (1, 0)))
    nobody = UPLOADS._replace(count=jnp.zeros((2, 3)))
    toy.assert_same(aggregated(nobody), SERVER)


def test_the_nearest_of_all_prototypes_is_the_answer():
    method = fedtgp(TASK, NOISY)
    w = TASK.init(jax.random.key(3))
    x, _ = perceptron.examples(1)
    z = perceptron.features(perceptron.weights(w), x)
    evaluated = method.personal(toy.turn(), SERVER, w, None)
    logits = method.predict(evaluated, Batch.full(np.float32(x)))
    _, distance = apart(z, np.float64(generate(SERVER)))
    np.testing.assert_allclose(logits, -(distance**2), rtol=1e-4, atol=1e-5)


def test_what_is_sent_knows_no_architecture():
    one, other = perceptron.exchanges_of_two_architectures(fedtgp)
    assert one == other
