import itertools

import jax
import jax.numpy as jnp
import numpy as np

import perceptron
from pfljax.algorithms.decoupling._heads import nearest_mixture
from pfljax.algorithms.decoupling.fedpac import fedpac
from pfljax.conformance import Case, toy

STATISTICS = 4 * (3 * 4 + 3)  # prototypes of 4 features and counts of 3 classes
DOWN = toy.WHOLE + STATISTICS
UP = toy.WHOLE + STATISTICS + 4 * (3 * 4 + 1)
CONFORMANCE = [
    Case("fedpac", bytes=(DOWN, UP), sends_statistics=True),
    Case("fedpac", {"lam": 0.3, "head_lr": 0.01, "head_epochs": 3},
         bytes=(DOWN, UP), sends_statistics=True),
]  # fmt: skip

TASK, LOCAL = toy.classifier(), perceptron.FULL
TRAIN, _ = toy.ragged()
LAM, RATE = 0.7, 0.2


def solved(means, variance, k):
    """The weights of the least quadratic form, by all sets of positive weights."""
    apart = (means - means[k]).reshape(len(means), -1)
    matrix = apart @ apart.T + np.diag(variance)
    best, least = None, np.inf
    for size in range(1, len(means) + 1):
        for own in map(list, itertools.combinations(range(len(means)), size)):
            part = np.linalg.solve(matrix[np.ix_(own, own)], np.ones(size))
            part /= part.sum()
            value = part @ matrix[np.ix_(own, own)] @ part
            if (part >= 0).all() and value < least:
                best, least = np.zeros(len(means)), value
                best[own] = part
    return best


def trained(w, prototypes, x, y):
    """(b_k and h_k, H_k, V_k) of two steps of the head, and two of the body."""
    z = perceptron.features(w, x)
    mean, count = perceptron.by_class(z, y)
    means = mean * count[:, None] / len(y)
    variance = ((z**2).sum(1).mean() - (means**2).sum()) / len(y)
    for _ in range(2):
        slope = perceptron.cross_entropy_slope(perceptron.logits(w, z), y)
        w = [*w[:2], *perceptron.stepped(w, x, slope, rate=RATE)[2:]]
    for _ in range(2):
        z = perceptron.features(w, x)
        slope = perceptron.cross_entropy_slope(perceptron.logits(w, z), y)
        pull = 0.0
        if prototypes is not None:
            pull = LAM * 2 * (z - prototypes[y]) / z.size
        w = [*perceptron.stepped(w, x, slope, pull)[:2], *w[2:]]
    return w, means, variance


def test_fedpac_against_numpy():
    options = {"lam": LAM, "head_epochs": 2, "head_lr": RATE}
    method = fedpac(TASK, LOCAL, **options)
    states, _ = toy.run_rounds(method, TASK, LOCAL, TRAIN, 2, cohort=5)
    w = perceptron.weights(states[0].server.b | {"head": states[0].server.h["head"]})
    body, heads, prototypes = w[:2], [w[2:]] * 8, None
    for state in states[1:]:
        cohort = np.asarray(state.cohort)
        data = [perceptron.examples(k) for k in cohort]
        sent = [
            trained([*body, *heads[k]], prototypes, *each)
            for k, each in zip(cohort, data, strict=True)
        ]
        uploads, means, variance = zip(*sent, strict=True)
        body = perceptron.averaged([w[:2] for w in uploads], cohort)
        own = [
            perceptron.by_class(perceptron.features(w, x), y)
            for w, (x, y) in zip(uploads, data, strict=True)
        ]
        total = sum(mean * count[:, None] for mean, count in own)
        prototypes = total / sum(count for _, count in own)[:, None]
        for i, k in enumerate(cohort):
            alpha = solved(np.array(means), np.array(variance), i)
            alpha = np.where(alpha < 1e-3, 0, alpha)
            heads[k] = [
                np.tensordot(alpha, leaf, 1)
                for leaf in map(np.array, zip(*[w[2:] for w in uploads], strict=True))
            ]
        perceptron.assert_weights(state.server.b, body)
        np.testing.assert_allclose(
            state.server.prototypes.mean, prototypes, rtol=1e-4, atol=1e-5
        )
        for k, head in enumerate(heads):
            for leaf, wanted in zip(
                perceptron.of_client(state.server.heads, k), head, strict=True
            ):
                np.testing.assert_allclose(leaf, wanted, rtol=1e-3, atol=1e-4)


def test_mixtures_of_two_and_of_equal_estimates():
    means = jnp.array([[0.3, 0.0], [0.0, 0.4], [9.0, 9.0]])
    known, place = jnp.array([True, True, False]), jnp.int32(0)
    variance = jnp.array([0.2, 0.1, 0.0])
    other = 0.2 / (0.2 + 0.1 + 0.25)
    solve = jax.jit(nearest_mixture)
    found = solve(means, variance, known, place)
    np.testing.assert_allclose(found, [1 - other, other, 0], atol=1e-5)
    equal = solve(0 * means, variance, known, place)
    np.testing.assert_allclose(equal, [1 / 3, 2 / 3, 0], atol=1e-5)
