from functools import partial

import jax
import numpy as np

import perceptron
from pfljax.algorithms.decoupling.fedpcl import fedpcl
from pfljax.conformance import Case, toy
from pfljax.core.types import Batch

VECTORS = 4 * (3 * 4 + 3)  # 4 features and a count of 3 classes
SENT = 8 * VECTORS, VECTORS
# Without a step it would send means of its examples, which `origin` cannot know.
CONFORMANCE = [Case("fedpcl", bytes=SENT, sends_statistics=True)]

TASK, LOCAL = toy.classifier(), perceptron.FULL
TRAIN, _ = toy.ragged()
TAU, RATE = 0.5, 0.1


def unit(w, x):
    z = perceptron.features(w, x)
    length = np.linalg.norm(z, axis=1, keepdims=True)
    return z / np.where(length > 0, length, 1)


def objective(w, x, y, common, sent):
    """The loss against the mean prototypes, and those of each client."""
    z = unit(w, x)
    each = [np.where(count[:, None] > 0, mean, common) for mean, count in sent]
    losses = [perceptron.cross_entropy(z @ c.T / TAU, y) for c in (common, *each)]
    return losses[0] + np.mean(losses[1:])


def test_fedpcl_against_numpy():
    """In the first round nobody trains; gradients are central differences."""
    method = fedpcl(TASK, LOCAL, tau=TAU)
    states, _ = toy.run_rounds(method, TASK, LOCAL, TRAIN, 3, cohort=4)
    clients = [perceptron.of_client(states[0].clients, k) for k in range(8)]
    sent = {}
    for state in states[1:]:
        uploads = {}
        if sent:
            has = np.array([count > 0 for _, count in sent.values()])
            assert has.any(0).all()
            means = np.array([mean for mean, _ in sent.values()])
            common = means.sum(0) / has.sum(0)[:, None]
        for k in np.asarray(state.cohort):
            x, y = perceptron.examples(k)
            for _ in range(2 if sent else 0):
                received = list(sent.values())
                slope = perceptron.slopes(
                    lambda w: objective(w, x, y, common, received),  # noqa: B023
                    clients[k],
                )
                clients[k] = [
                    a - RATE * b for a, b in zip(clients[k], slope, strict=True)
                ]
            uploads[k] = perceptron.by_class(unit(clients[k], x), y)
        sent |= uploads
        perceptron.assert_clients(state.clients, clients)
        for k, (mean, count) in sent.items():
            np.testing.assert_allclose(state.server.mean[k], mean, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(state.server.count[k], count)
    assert len(sent) > 4
    k = next(k for k, (_, count) in sent.items() if not count.all())
    x, (mean, count) = perceptron.examples(1)[0], sent[k]
    square = ((unit(clients[k], x)[:, None] - mean) ** 2).sum(-1)
    wanted = np.argmin(np.where(count > 0, square, np.inf), 1)
    own = jax.tree.map(lambda leaf: leaf[k], state.clients)
    model = jax.jit(partial(method.personal, None))(
        state.server, own, toy.one(TRAIN, k)
    )
    found = jax.jit(method.predict)(model, Batch.full(x))
    np.testing.assert_array_equal(np.argmax(found, 1), wanted)
