import jax
import numpy as np
import pytest

import perceptron
from pfljax.algorithms.decoupling._mmd import discrepancy
from pfljax.algorithms.decoupling.fedphp import fedphp
from pfljax.conformance import Case, toy
from pfljax.core.types import Batch

SENT = (toy.WHOLE, toy.WHOLE)
CONFORMANCE = [
    Case("fedphp", bytes=SENT),
    Case("fedphp", {"by": "kd", "share": 0.5}, bytes=SENT),
]

TASK, LOCAL = toy.classifier(), perceptron.FULL
TRAIN, _ = toy.ragged()
OPTIONS = {"lam": 0.3, "mu": 0.8, "share": 0.6, "rounds": 3}


def discrepancy_slope(a, b):
    """(MMD, its slope in a), of widths relative to the mean squared distance."""
    points = np.concatenate([a, b])
    square = ((points[:, None] - points) ** 2).sum(-1)
    mean = square.sum() / (len(points) * (len(points) - 1))
    if not mean:
        return 0.0, np.zeros_like(a)
    sign = np.repeat([1, -1], len(a))
    value, slope = 0.0, np.zeros_like(a)
    for width in mean * 2.0 ** np.arange(-2, 3):
        kernel = np.exp(-square / width) * sign[:, None] * sign / len(a) ** 2
        value += kernel.sum()
        gap = a[:, None] - points
        slope -= 4 / width * (kernel[: len(a), :, None] * gap).sum(1)
    return value, slope


def trained(w, p, x, y, by):
    """[b, W, c, V] after two steps, with p as the model of the past."""
    lam = OPTIONS["lam"]
    for _ in range(2):
        z, past = perceptron.features(w, x), perceptron.features(p, x)
        logits = perceptron.logits(w, z)
        of_logits = (1 - lam) * perceptron.cross_entropy_slope(logits, y)
        of_features = 0.0
        if by == "mmd":
            of_features = lam * discrepancy_slope(z, past)[1]
        else:
            soft = perceptron.softmax(perceptron.logits(p, past) / 4)
            of_logits += lam * (perceptron.softmax(logits) - soft) / len(y)
        w = perceptron.stepped(w, x, of_logits, of_features)
    return w


@pytest.mark.parametrize("by", ["mmd", pytest.param("kd", marks=pytest.mark.slow)])
def test_fedphp_against_numpy(by):
    method = fedphp(TASK, LOCAL, by=by, **OPTIONS)
    states, _ = toy.run_rounds(method, TASK, LOCAL, TRAIN, 3, cohort=5)
    w = perceptron.weights(states[0].server)
    past, count = [w] * 8, np.zeros(8)
    for state in states[1:]:
        uploads, cohort = [], np.asarray(state.cohort)
        for k in cohort:
            new = trained(w, past[k], *perceptron.examples(k), by)
            mu = min(0.8, 0.8 * count[k] / (0.6 * 3))
            past[k] = [mu * a + (1 - mu) * b for a, b in zip(past[k], new, strict=True)]
            count[k] += 1
            uploads.append(new)
        w = perceptron.averaged(uploads, cohort)
        perceptron.assert_clients(state.clients.p, past)
    assert count.max() == 3  # so that the largest mu is reached
    perceptron.assert_weights(states[-1].server, w)


def test_the_discrepancy_counts_examples_by_their_mask():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 5, 3)).astype(np.float32)
    batch = Batch.full(a)._replace(mask=np.array([1, 1, 1, 0, 0], np.float32))
    value, _ = discrepancy_slope(np.float64(a[:3]), np.float64(b[:3]))
    found = jax.jit(discrepancy, static_argnums=3)(a, b, batch, True)
    np.testing.assert_allclose(found, value, 1e-4)
