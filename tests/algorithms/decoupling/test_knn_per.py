import jax
import numpy as np
import pytest

import perceptron
import tiny
from pfljax.algorithms.decoupling.knn_per import knn_per
from pfljax.conformance import Case, toy
from pfljax.core.types import Batch
from pfljax.simulate import begin

SENT = (toy.WHOLE, toy.WHOLE)
CONFORMANCE = [
    Case("knn_per", bytes=SENT),
    Case("knn_per", {"lam": 1.0, "neighbours": 1}, bytes=SENT),
]

TASK, LOCAL = toy.classifier(), perceptron.FULL
TRAIN, TEST = toy.ragged()
LAM, NEIGHBOURS, SIGMA = 0.3, 4, 0.2


def probabilities(w, k, x, lam=LAM, neighbours=NEIGHBOURS, sigma=SIGMA):
    """p(y | x) of client k."""
    rows, labels = perceptron.examples(k)
    known, z = perceptron.features(w, rows), perceptron.features(w, x)
    square = ((z[:, None] - known) ** 2).sum(-1)
    votes = np.zeros((len(x), 3))
    for i, distance in enumerate(square):
        nearest = np.argsort(distance)[:neighbours]
        weight = np.exp((distance.min() - distance[nearest]) / (4 * sigma))
        for j, each in zip(labels[nearest], weight / weight.sum(), strict=True):
            votes[i, j] += each
    return lam * votes + (1 - lam) * perceptron.softmax(perceptron.logits(w, z))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"neighbours": 20, "sigma": 1e12, "lam": 1.0},  # the shares of the classes
        {"neighbours": 1, "sigma": 1e-9, "lam": 1.0},
    ],
)
def test_knn_per_against_numpy(options):
    """Clients with 3, 7 and 20 examples: fewer than neighbours, and more."""
    options = {"lam": LAM, "neighbours": NEIGHBOURS, "sigma": SIGMA} | options
    method = knn_per(TASK, LOCAL, **options, max_examples=max(toy.SIZES))
    params = TASK.init(jax.random.key(0))
    x = np.float64(TEST.examples.x[:7])
    evaluate = jax.jit(
        lambda data: method.predict(
            method.personal(toy.turn(), params, (), data), Batch.full(x)
        )
    )
    for k in (0, 2, 1):
        wanted = probabilities(perceptron.weights(params), k, x, **options)
        found = np.exp(evaluate(toy.one(TRAIN, k)))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_more_neighbours_than_examples_are_refused():
    job = tiny.TINY.replace(algorithm="knn_per:neighbours=9999")
    with pytest.raises(ValueError, match=r"neighbours is 9999; .* largest") as error:
        begin.check_method(job, None, None)
    assert "\n" not in str(error.value)
