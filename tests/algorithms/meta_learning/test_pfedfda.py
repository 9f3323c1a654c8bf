import jax
import numpy as np

import perceptron
from pfljax.algorithms.meta_learning.pfedfda import pfedfda
from pfljax.conformance import Case, toy

# The body, and the Gaussians of three classes with four features.
SENT = toy.BODY + 4 * (3 * 4 + 4 * 4)
CONFORMANCE = [
    Case("pfedfda", bytes=(SENT, SENT), sends_statistics=True),
    Case("pfedfda", {"ridge": 0.01}, bytes=(SENT, SENT), sends_statistics=True),
]

RIDGE = 0.05
SIZES = np.array(toy.SIZES)


def head_of(mean, covariance, shares):
    """[c, V] of the linear discriminant."""
    towards = np.trace(covariance) / 4 * np.eye(4)
    kernel = np.linalg.solve(covariance + 1e-4 * (towards - covariance), mean.T)
    return [np.log(shares) - (mean.T * kernel).sum(0) / 2, kernel]


def estimate(z, y, known):
    mean = np.array(
        [z[y == j].mean(0) if (y == j).any() else known[j] for j in range(3)]
    )
    away = z - mean[y]
    return mean, away.T @ away / max(len(z) - 1, 1) + RIDGE * np.eye(4)


def adapt(z, y, known, shares):
    """The best of a grid of mixtures by two folds of alternate examples of a class."""
    fold = np.array([(y[:i] == label).sum() % 2 for i, label in enumerate(y)])
    kept = np.array([(y == label).sum() > 1 for label in y])
    parts = [kept & (fold == half) for half in (0, 1)]

    def mixed(own, beta):
        return [b * a + (1 - b) * k for a, k, b in zip(own, known, beta, strict=True)]

    def loss(beta):
        total = 0.0
        for test, fitted in (parts, parts[::-1]):
            own = estimate(z[fitted], y[fitted], known[0])
            c, kernel = head_of(*mixed(own, beta), shares)
            a = z[test] @ kernel + c
            total -= np.log(perceptron.softmax(a)[np.arange(len(a)), y[test]]).sum()
        return total

    grid = [(m / 10, c / 10) for c in range(11) for m in range(11)]
    return mixed(estimate(z, y, known[0]), min(grid, key=loss))


def test_pfedfda_against_numpy():
    """Two rounds of 5 of 8 clients, and the heads of all for the newest body."""
    task, (train, _) = toy.classifier(), toy.ragged()
    method = pfedfda(task, perceptron.FULL, ridge=RIDGE, max_examples=max(toy.SIZES))
    states, _ = toy.run_rounds(method, task, perceptron.FULL, train, 2, cohort=5)
    body = perceptron.weights(states[0].server.body)
    known = [np.float64(a) for a in states[0].server.gaussians]
    np.testing.assert_array_equal(known[1], np.eye(4))

    def shares_of(y):
        shares = np.bincount(y, minlength=3) / len(y) + 1e-4
        return shares / shares.sum()

    for state in states[1:]:
        ids, uploads = np.asarray(state.cohort), []
        for k in ids:
            x, y = perceptron.examples(k)
            head, w = head_of(*known, shares_of(y)), body
            for _ in range(2):
                a = perceptron.logits([*w, *head], perceptron.features(w, x))
                slope = perceptron.cross_entropy_slope(a, y)
                w = perceptron.stepped([*w, *head], x, slope)[:2]
            sent = adapt(perceptron.features(w, x), y, known, shares_of(y))
            uploads.append([*w, *sent])
        means = [
            np.average(leaves, axis=0, weights=SIZES[ids])
            for leaves in zip(*uploads, strict=True)
        ]
        body, known = means[:2], means[2:]
        for leaf, wanted in zip(jax.tree.leaves(state.server), means, strict=True):
            np.testing.assert_allclose(leaf, wanted, rtol=1e-4, atol=1e-4)
    personal = jax.jit(lambda server, data: method.personal(None, server, (), data))
    model = personal(states[-1].server, toy.one(train, 5))
    x, y = perceptron.examples(5)
    own = adapt(perceptron.features(body, x), y, known, shares_of(y))
    bias, kernel = head_of(*own, shares_of(y))
    np.testing.assert_allclose(model.head.bias, bias, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(model.head.kernel, kernel, rtol=1e-3, atol=1e-3)
