import jax
import numpy as np
import pytest

import perceptron
from pfljax.algorithms.decoupling.feddbe import feddbe
from pfljax.conformance import Case, toy
from pfljax.core.types import Batch

DOWN, UP = toy.WHOLE + 4 * (4 + 1), toy.WHOLE + 4 * 4  # mean features; if it is known
CONFORMANCE = [
    Case("feddbe", {"kappa": 1.0}, bytes=(DOWN, UP)),
    Case("feddbe", {"kappa": 1.0, "mu": 0.3}, bytes=(DOWN, UP)),
]

TASK, LOCAL = toy.classifier(), perceptron.FULL
TRAIN, _ = toy.ragged()
KAPPA, RATE = 2.0, 0.1


def trained(w, m, consensus, x, y, mu):
    """([b, W, c, V], m) after two steps; without a consensus those of FedAvg."""
    mean = np.zeros(4)
    for _ in range(2):
        z = perceptron.features(w, x)
        slope = perceptron.cross_entropy_slope(perceptron.logits(w, z + m), y)
        if consensus is None:
            w = perceptron.stepped(w, x, slope)
            continue
        mean = (1 - mu) * mean + mu * z.mean(0)
        pull = KAPPA * mu * (mean - consensus) / (len(x) * len(m))
        of_m = slope.sum(0) @ w[3].T
        # The head is trained on shifted features.
        shift = np.outer(m, slope.sum(0))
        w = perceptron.stepped(w, x, slope, pull)
        w[3] = w[3] - RATE * shift
        m = m - RATE * of_m
    return w, m


@pytest.mark.parametrize("mu", [0.4, pytest.param(1.0, marks=pytest.mark.slow)])
def test_feddbe_against_numpy(mu):
    method = feddbe(TASK, LOCAL, kappa=KAPPA, mu=mu)
    states, _ = toy.run_rounds(method, TASK, LOCAL, TRAIN, 3, cohort=5)
    w, m, consensus = perceptron.weights(states[0].server.w), [np.zeros(4)] * 8, None
    for state in states[1:]:
        uploads, cohort = [], np.asarray(state.cohort)
        for k in cohort:
            data = perceptron.examples(k)
            new, m[k] = trained(w, m[k], consensus, *data, mu)
            uploads.append([perceptron.features(new, data[0]).mean(0), *new])
        mean, *w = perceptron.averaged(uploads, cohort)
        consensus = mean if consensus is None else consensus
        perceptron.assert_weights(state.server.w, w)
        np.testing.assert_allclose(state.server.mean, consensus, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state.clients, m, rtol=1e-4, atol=1e-5)
    k = int(states[-1].cohort[0])
    x, _ = perceptron.examples(k)
    own = jax.tree.map(lambda leaf: leaf[k], states[-1].clients)
    for model, shift in (
        (method.personal(None, states[-1].server, own, None), m[k]),
        (method.newcomer(None, states[-1].server, None), 0),
    ):
        wanted = perceptron.logits(w, perceptron.features(w, x) + shift)
        found = jax.jit(method.predict)(model, Batch.full(x))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
