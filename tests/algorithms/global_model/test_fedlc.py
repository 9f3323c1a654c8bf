import numpy as np
import pytest

import perceptron
from pfljax.algorithms.global_model.fedlc import fedlc
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("fedlc", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("fedlc", {"over": "others", "finetune": 2}, bytes=(toy.WHOLE, toy.WHOLE)),
]

TAU = 0.8


def trained(w, k, over):
    """[b, W, c, V] of client k after two steps on all of its examples."""
    x, y = perceptron.examples(k)
    _, count = perceptron.by_class(x, y)
    with np.errstate(divide="ignore"):
        shift = TAU * np.float64(count) ** -0.25
    own = perceptron.one_hot(y)
    for _ in range(2):
        a = perceptron.logits(w, perceptron.features(w, x)) - shift
        if over == "others":
            a = np.where(own == 1, -np.inf, a)
        w = perceptron.stepped(w, x, (perceptron.softmax(a) - own) / len(y))
    return w


@pytest.mark.parametrize(
    "over", ["all", pytest.param("others", marks=pytest.mark.slow)]
)
def test_fedlc_against_numpy(over):
    """An absent class has no share of the softmax."""
    models, cohorts = perceptron.run_averaging(fedlc, tau=TAU, over=over)
    perceptron.assert_averages(models, cohorts, lambda w, k: trained(w, k, over))
    counts = [perceptron.by_class(*perceptron.examples(k))[1] for k in range(8)]
    assert (np.array(counts) == 0).any()
