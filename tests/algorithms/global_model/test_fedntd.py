import numpy as np

import perceptron
from pfljax.algorithms.global_model.fedntd import fedntd
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("fedntd", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("fedntd", {"temperature": 2.0, "finetune": 2}, bytes=(toy.WHOLE, toy.WHOLE)),
]

BETA, T = 3.0, 2.0


def of_others(a, y):
    """The softmax of logits over T, over all classes but the true one."""
    true = perceptron.one_hot(y, a.shape[1]) == 1
    return perceptron.softmax(np.where(true, -np.inf, a / T))


def trained(w, k):
    """[b, W, c, V] of client k after two steps on all of its examples."""
    x, y = perceptron.examples(k)
    teacher = of_others(perceptron.logits(w, perceptron.features(w, x)), y)
    v = w
    for _ in range(2):
        a = perceptron.logits(v, perceptron.features(v, x))
        # T^2 of the loss, and 1 / T of the chain rule.
        gap = BETA * T * (of_others(a, y) - teacher) / len(y)
        v = perceptron.stepped(v, x, perceptron.cross_entropy_slope(a, y) + gap)
    return v


def test_fedntd_against_numpy():
    models, cohorts = perceptron.run_averaging(fedntd, beta=BETA, temperature=T)
    perceptron.assert_averages(models, cohorts, trained)
