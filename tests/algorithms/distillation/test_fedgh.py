import jax
import jax.numpy as jnp
import numpy as np
import pytest

import perceptron
from pfljax.algorithms._prototypes import Prototypes
from pfljax.algorithms.distillation.fedgh import fedgh
from pfljax.conformance import Case, toy
from pfljax.core.optimizers import sgd
from pfljax.core.training import fit
from pfljax.core.types import ClientData, Examples, Local

SENT = 4 * (3 * 4 + 3)  # 4 features of each of 3 classes, and which of them there are
# Without a step it would send means of its examples, which `origin` cannot know:
# law "2 origin" does not apply.
CONFORMANCE = [Case("fedgh", bytes=(toy.HEAD, SENT), sends_statistics=True)]

TASK = toy.classifier()
TRAIN, _ = toy.ragged()
NOISY = Local(0.1, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-2))
RNG = np.random.default_rng(6)
THETA = {"bias": RNG.normal(size=3), "kernel": RNG.normal(size=(4, 3))}
HEAD = {"head": {name: jnp.float32(leaf) for name, leaf in THETA.items()}}


def head_step(c, v, z, y, rate):
    """(c, V) after a step of softmax regression on the examples z."""
    slope = perceptron.cross_entropy_slope(z @ v + c, y)
    return c - rate * slope.sum(0), v - rate * z.T @ slope


def test_fedgh_against_numpy():
    """Two steps on all examples, by 5 of 8 clients a round; the server takes three."""
    method = fedgh(TASK, perceptron.FULL, server_steps=3, server_lr=0.4)
    states, _ = toy.run_rounds(method, TASK, perceptron.FULL, TRAIN, 2, cohort=5)
    bodies = [perceptron.of_client(states[0].clients, k) for k in range(8)]
    c, v = perceptron.weights(states[0].server)
    for state in states[1:]:
        means, labels = [], []
        for k in np.asarray(state.cohort):
            x, y = perceptron.examples(k)
            w = [*bodies[k], c, v]
            for _ in range(2):
                a = perceptron.logits(w, perceptron.features(w, x))
                w = perceptron.stepped(w, x, perceptron.cross_entropy_slope(a, y))
            bodies[k] = w[:2]
            mean, count = perceptron.by_class(perceptron.features(w, x), y)
            means += [mean[count > 0]]
            labels += [np.flatnonzero(count)]
        for _ in range(3):
            c, v = head_step(c, v, np.concatenate(means), np.concatenate(labels), 0.4)
        perceptron.assert_clients(state.clients, bodies)
        for leaf, wanted in zip(perceptron.weights(state.server), (c, v), strict=True):
            np.testing.assert_allclose(leaf, wanted, rtol=1e-4, atol=1e-5)


def aggregated(uploads, mask, **options):
    method = fedgh(TASK, NOISY, **options)
    return method.aggregate(HEAD, uploads, toy.cohort(mask))


def uploads_of(count):
    mean = np.random.default_rng(8).normal(size=(len(count), 3, 4))
    return Prototypes(jnp.float32(mean), jnp.float32(count))


@pytest.mark.parametrize("frozen", [{"server_steps": 0}, {"server_lr": 0.0}])
def test_a_server_that_does_not_train_keeps_its_head(frozen):
    toy.assert_same(aggregated(uploads_of([[1, 1, 1]] * 2), [1, 1], **frozen), HEAD)


@pytest.mark.slow
def test_one_row_a_class_is_a_step_of_the_head_on_the_clients_own_examples():
    """One client, one step of the local rate: `fit` of the head alone does the same."""
    pool = Examples(jnp.float32(RNG.normal(size=(3, 3))), jnp.arange(3))
    data = ClientData(pool, jnp.int32(0), jnp.int32(3))
    once = perceptron.FULL
    method = fedgh(TASK, once)
    w = TASK.init(jax.random.key(1))
    theta = method.init(w, 1, jax.random.key(0))
    phi = method.init_client(w, jnp.int32(0), jax.random.key(0))
    phi, upload, _ = method.train(toy.turn(steps=2), theta, phi, data)
    uploads = jax.tree.map(lambda leaf: leaf[None], upload)
    after = method.aggregate(theta, uploads, toy.cohort([1.0]))

    def of_head(head, batch, key):
        return TASK.loss(phi | head, batch, key)

    wanted, _ = fit(of_head, theta, data, toy.turn(), once)
    toy.assert_close(after, wanted, 1e-6)
    kernel, old = after["head"]["kernel"], theta["head"]["kernel"]
    assert np.abs(kernel - old).max() > 1e-3


def test_a_class_that_nobody_sends_loses_bias():
    after = aggregated(uploads_of([[1, 1, 0], [0, 1, 0]]), [1, 1], server_lr=0.5)
    moved = np.asarray(after["head"]["bias"] - HEAD["head"]["bias"])
    means = np.float64(uploads_of([[1, 1, 0], [0, 1, 0]]).mean)
    answers = perceptron.softmax(means @ THETA["kernel"] + THETA["bias"])
    slope = answers[[0, 0, 1], [0, 1, 1], 2]
    np.testing.assert_allclose(moved[2], -0.5 * slope.mean(), rtol=1e-4)


def test_who_lacks_a_class_or_does_not_report_teaches_nothing():
    uploads = uploads_of([[1, 0, 1], [1, 1, 1]])
    noise = uploads._replace(mean=uploads.mean.at[0, 1].add(9).at[1].add(9))
    toy.assert_same(aggregated(uploads, [1, 0]), aggregated(noise, [1, 0]))
    nobody = Prototypes(jnp.zeros((2, 3, 4)), jnp.zeros((2, 3)))
    toy.assert_same(aggregated(nobody, [1, 1]), HEAD)


def test_everybody_begins_and_is_evaluated_with_the_newest_head():
    """Of `server_steps` = 0 every round begins at one head, whatever clients made."""
    method = fedgh(TASK, NOISY, server_steps=0)
    states, _ = toy.run_rounds(method, TASK, NOISY, TRAIN, 2)
    toy.assert_same(states[-1].server, states[0].server)
    assert set(states[-1].clients) == {"body"}
    phi = jax.tree.map(lambda leaf: leaf[1], states[-1].clients)
    toy.assert_same(method.personal(toy.turn(), HEAD, phi, None), phi | HEAD)


def test_what_is_sent_knows_no_architecture():
    one, other = perceptron.exchanges_of_two_architectures(fedgh)
    assert one == other
