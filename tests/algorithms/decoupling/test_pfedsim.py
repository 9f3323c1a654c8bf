import jax
import numpy as np

import perceptron
from pfljax.algorithms.decoupling.pfedsim import pfedsim
from pfljax.conformance import Case, toy

SENT = (toy.WHOLE, toy.WHOLE)
CONFORMANCE = [
    Case("pfedsim", {"warm_up": 0.3}, bytes=SENT),
    Case("pfedsim", {"warm_up": 0.0}, bytes=SENT),
]

RATE = 1.0  # so that heads become different
TASK, LOCAL = toy.classifier(), toy.full_batch(epochs=2, rate=RATE)
TRAIN, _ = toy.ragged()


def trained(w, x, y):
    for _ in range(2):
        logits = perceptron.logits(w, perceptron.features(w, x))
        slope = perceptron.cross_entropy_slope(logits, y)
        w = perceptron.stepped(w, x, slope, rate=RATE)
    return w


def cosine(a, b):
    """The mean cosine of the rows of two heads, cut at 0 and at 0.9999."""
    products = (a * b).sum(0) / np.linalg.norm(a, axis=0) / np.linalg.norm(b, axis=0)
    return np.clip(products.mean(), 0, 0.9999)


def test_pfedsim_against_numpy():
    """One round of warm-up, two of bodies that are mixed by similarity."""
    method = pfedsim(TASK, LOCAL, warm_up=0.4, rounds=3)
    states, _ = toy.run_rounds(method, TASK, LOCAL, TRAIN, 3, cohort=5)

    def personal(k, server):
        return method.personal(toy.turn(None, 3)._replace(id=k), server, (), None)

    w, similar = perceptron.weights(states[0].server.w), np.zeros((8, 8))
    models = [w] * 8
    for number, state in enumerate(states[1:]):
        cohort = np.asarray(state.cohort)
        first = {}
        for k in cohort:
            u = -np.log(1 - similar[k])
            u[k] = -np.log(1 - 0.9999)
            mixed = [np.average(leaf, 0, u) for leaf in zip(*models, strict=True)]
            first[k] = [*mixed[:2], *models[k][2:]]
        new = {k: trained(first[k], *perceptron.examples(k)) for k in cohort}
        if number == 0:
            w = perceptron.averaged(new.values(), cohort)
            models = [w] * 8
            continue
        for i in cohort:
            models[i] = new[i]
            for j in cohort:
                similar[i, j] = cosine(new[i][3], new[j][3])
        perceptron.assert_weights(state.server.w, w)
        np.testing.assert_allclose(state.server.similarity, similar, atol=1e-5)
        evaluated = jax.vmap(lambda k, server=state.server: personal(k, server))
        perceptron.assert_clients(evaluated(np.arange(8)), models)
    assert ((similar > 0) & (similar < 0.99)).sum() > 10
    turn = toy.turn(None, 3)
    toy.assert_same(method.newcomer(turn, states[-1].server, None), states[1].server.w)
    assert jax.tree.leaves(states[-1].clients) == []
