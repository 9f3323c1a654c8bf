import itertools

import jax
import numpy as np

import perceptron
from pfljax.algorithms.decoupling.fenda import fenda
from pfljax.conformance import Case, toy

CONFORMANCE = [Case("fenda", bytes=(toy.BODY, toy.BODY))]


def trained(own, shared, x, y):
    """Both models after two steps on all examples, with one loss of both."""
    for _ in range(2):
        pair = own, shared
        a = sum(perceptron.logits(w, perceptron.features(w, x)) for w in pair)
        slope = perceptron.cross_entropy_slope(a, y)
        own, shared = (perceptron.stepped(w, x, slope) for w in pair)
    return own, shared


def test_fenda_against_numpy():
    """Bodies are averaged; heads and own models stay with 5 of 8 clients a round."""
    task, (train, _) = toy.classifier(), toy.ragged()
    method = fenda(task, perceptron.FULL)
    states, _ = toy.run_rounds(method, task, perceptron.FULL, train, cohort=5)
    first = states[0]
    body = perceptron.weights(first.server)
    own = [perceptron.of_client(first.clients.own, k) for k in range(8)]
    head = [perceptron.of_client(first.clients.head, k) for k in range(8)]
    for state in states[1:]:
        ids, bodies = np.asarray(state.cohort), []
        for k in ids:
            pair = own[k], body + head[k]
            own[k], shared = trained(*pair, *perceptron.examples(k))
            head[k] = shared[2:]
            bodies.append(shared[:2])
        sizes = np.array(toy.SIZES)[ids]
        body = [np.average(b, axis=0, weights=sizes) for b in zip(*bodies, strict=True)]
        for leaf, wanted in zip(perceptron.weights(state.server), body, strict=True):
            np.testing.assert_allclose(leaf, wanted, rtol=1e-4, atol=1e-5)
        perceptron.assert_clients(state.clients.own, own)
        perceptron.assert_clients(state.clients.head, head)


def test_own_bodies_are_drawn_for_each_client():
    task = toy.classifier()
    params = task.init(jax.random.key(0))
    init_client = fenda(task, perceptron.FULL).init_client
    models = [init_client(params, k, jax.random.key(k)).own for k in range(2)]
    kernels = [w["body"]["layers_1"]["kernel"] for w in (params, *models)]
    for pair in itertools.combinations(kernels, 2):
        assert not np.allclose(*pair)
