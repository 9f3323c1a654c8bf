import numpy as np

import perceptron
from pfljax.algorithms.decoupling.perfcl import perfcl
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("perfcl", bytes=(toy.BODY, toy.BODY)),
    Case("perfcl", {"gamma": 0.0}, bytes=(toy.BODY, toy.BODY)),
]

MU, GAMMA, T = 3.0, 2.0, 0.3


def trained(own, shared, last, x, y):
    """Both models after two steps on all examples; `last` is None at first."""
    pair, pulls = [own, shared], [0.0, 0.0]
    for _ in range(2):
        z_own, z = (perceptron.features(w, x) for w in pair)
        a = perceptron.logits(pair[0], z_own) + perceptron.logits(pair[1], z)
        slope = perceptron.cross_entropy_slope(a, y)
        if last is not None:
            old_own, old, old_last = (
                perceptron.features(w, x) for w in (own, shared, last)
            )
            pulls = [
                GAMMA * perceptron.contrast_slope(z_own, old_own, old, T),
                MU * perceptron.contrast_slope(z, old, old_last, T),
            ]
        pair = [
            perceptron.stepped(w, x, slope, pull)
            for w, pull in zip(pair, pulls, strict=True)
        ]
    return pair


def test_perfcl_against_numpy():
    """In later rounds, some clients take part again, and some for the first time."""
    task, (train, _) = toy.classifier(), toy.ragged()
    method = perfcl(task, perceptron.FULL, mu=MU, gamma=GAMMA, temperature=T)
    states, _ = toy.run_rounds(method, task, perceptron.FULL, train, cohort=5)
    first = states[0]
    body = perceptron.weights(first.server)
    own = [perceptron.of_client(first.clients.kept.own, k) for k in range(8)]
    head = [perceptron.of_client(first.clients.kept.head, k) for k in range(8)]
    last = {}
    for state in states[1:]:
        ids, bodies = np.asarray(state.cohort), []
        for k in ids:
            pair = own[k], body + head[k]
            own[k], last[k] = trained(*pair, last.get(k), *perceptron.examples(k))
            head[k] = last[k][2:]
            bodies.append(last[k][:2])
        sizes = np.array(toy.SIZES)[ids]
        body = [np.average(b, axis=0, weights=sizes) for b in zip(*bodies, strict=True)]
        for leaf, wanted in zip(perceptron.weights(state.server), body, strict=True):
            np.testing.assert_allclose(leaf, wanted, rtol=1e-4, atol=1e-5)
        perceptron.assert_clients(state.clients.kept.own, own)
        perceptron.assert_clients(state.clients.kept.head, head)
