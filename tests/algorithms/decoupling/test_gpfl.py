from functools import partial

import jax
import numpy as np

import perceptron
from pfljax.algorithms.decoupling.gpfl import gpfl
from pfljax.conformance import Case, toy
from pfljax.core.types import Batch

E = 4  # features
VALVE = 2 * (E * E + E + 2 * E)
SENT = toy.BODY + 4 * (3 * E + VALVE)
CONFORMANCE = [
    Case("gpfl", bytes=(SENT, SENT)),
    Case("gpfl", {"lam": 0.0, "decay": 0.0}, bytes=(SENT, SENT)),
]

TASK, LOCAL = toy.classifier(), perceptron.FULL
TRAIN, _ = toy.ragged()
LAM, DECAY, RATE = 0.3, 0.2, 0.1


def branch(part, condition):
    """LayerNorm(ReLU(linear)) of a condition."""
    bias, kernel, shift, scale = part
    z = np.maximum(condition @ kernel + bias, 0)
    return (z - z.mean()) / np.sqrt(z.var() + 1e-5) * scale + shift


def read(z, valve, condition):
    gamma, beta = branch(valve[:4], condition), branch(valve[4:], condition)
    return np.maximum((gamma + 1) * z + beta, 0)


def conditions(classes, y):
    share = np.bincount(y, minlength=3) / len(y)
    return classes.mean(0), share @ classes


def objective(leaves, received, x, y):
    w, classes, valve = leaves[:4], leaves[4], leaves[5:]
    g, p = conditions(received, y)
    z = perceptron.features(w, x)
    common = read(z, valve, g)
    lengths = np.linalg.norm(common, axis=1)[:, None] * np.linalg.norm(classes, axis=1)
    cosine = common @ classes.T / np.where(lengths > 0, lengths, 1)
    return (
        perceptron.cross_entropy(perceptron.logits(w, read(z, valve, p)), y)
        + perceptron.cross_entropy(cosine, y)
        + LAM * np.linalg.norm(common - received[y])
        + DECAY / 2 * sum((leaf**2).sum() for leaf in (classes, *valve))
    )


def test_gpfl_against_numpy():
    """One round, whose gradients are taken by central differences."""
    method = gpfl(TASK, LOCAL, lam=LAM, decay=DECAY)
    (first, last), _ = toy.run_rounds(method, TASK, LOCAL, TRAIN, 1, cohort=2)
    body, heads = perceptron.weights(first.server.b), first.clients
    shared = perceptron.weights((first.server.classes, first.server.valve))
    expected = {k: perceptron.of_client(heads, k) for k in range(8)}
    uploads, cohort = [], np.asarray(last.cohort)
    for k in cohort:
        x, y = perceptron.examples(k)
        leaves = [*body, *expected[k], *(leaf.copy() for leaf in shared)]
        for _ in range(2):
            slope = perceptron.slopes(lambda w: objective(w, shared[0], x, y), leaves)  # noqa: B023
            leaves = [a - RATE * b for a, b in zip(leaves, slope, strict=True)]
        expected[k] = leaves[2:4]
        uploads.append([*leaves[:2], *leaves[4:]])
    mean = perceptron.averaged(uploads, cohort)
    perceptron.assert_weights(last.server, mean)
    perceptron.assert_clients(last.clients, expected.values())
    k = int(cohort[0])
    x, y = perceptron.examples(k)
    own = jax.tree.map(lambda leaf: leaf[k], last.clients)
    model = jax.jit(partial(method.personal, None))(last.server, own, toy.one(TRAIN, k))
    _, p = conditions(mean[2], y)
    w = [*mean[:2], *expected[k]]
    wanted = perceptron.logits(w, read(perceptron.features(w, x), mean[3:], p))
    found = jax.jit(method.predict)(model, Batch.full(x))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
