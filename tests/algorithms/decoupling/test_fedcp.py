import jax
import numpy as np
import pytest

import perceptron
import tiny
from pfljax.algorithms.decoupling.fedcp import fedcp
from pfljax.conformance import Case, toy
from pfljax.core.types import Batch
from pfljax.simulate import begin

E = 4  # features
SENT = toy.WHOLE + 4 * (E * 2 * E + 3 * 2 * E)
CONFORMANCE = [
    Case("fedcp", bytes=(SENT, SENT)),
    Case("fedcp", {"lam": 0.0}, bytes=(SENT, SENT)),
]

LOCAL = perceptron.FULL
TRAIN, _ = toy.ragged()
LAM, RATE = 0.7, 0.1


def init(key):
    """Parameters without an example whose features are all 0, where ReLU bends."""
    return jax.tree.map(lambda leaf: leaf + 0.3, toy.classifier().init(key))


TASK = toy.classifier()._replace(init=init)


def discrepancy(a, b):
    """MMD with kernels exp(-d^2 / 2a), a = 10, 15, 20 and 50."""
    points, sign = np.concatenate([a, b]), np.repeat([1, -1], len(a))
    square = ((points[:, None] - points) ** 2).sum(-1)
    kernel = sum(np.exp(-square / (2 * width)) for width in (10, 15, 20, 50))
    return (sign[:, None] * sign * kernel).sum() / len(a) ** 2


def logits(z, policy, own, shared, context):
    """h(s z) + g(r z) without noise."""
    bias, kernel, shift, scale = (leaf.reshape(-1, 2 * E) for leaf in policy)
    pair = z * context @ kernel + bias
    centred = pair - pair.mean(1, keepdims=True)
    pair = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * scale + shift
    pair = np.maximum(pair, 0)
    s = 1 / (1 + np.exp(pair[:, E:] - pair[:, :E]))
    return (s * z) @ own[1] + own[0] + ((1 - s) * z) @ shared[1] + shared[0]


def context(head):
    total = head[1].sum(1)
    return total / np.linalg.norm(total)


def test_fedcp_against_numpy(monkeypatch):
    """Two rounds without noise, whose gradients are taken by central differences."""
    monkeypatch.setattr(jax.random, "gumbel", lambda key, shape: np.zeros(shape))
    method = fedcp(TASK, LOCAL, lam=LAM)
    states, _ = toy.run_rounds(method, TASK, LOCAL, TRAIN, 2, cohort=2)
    *w, b0, b1, b2, b3 = perceptron.weights(states[0].server)
    policy, heads = [b0, b1, b2, b3], [w[2:]] * 8
    for state in states[1:]:
        uploads, cohort = [], np.asarray(state.cohort)
        for k in cohort:
            (x, y), received = perceptron.examples(k), w
            past, v = perceptron.features(received, x), context(heads[k])

            def objective(leaves, x=x, y=y, received=received, past=past, v=v):
                z = perceptron.features(leaves[:2], x)
                a = logits(z, leaves[4:], leaves[2:4], received[2:], v)
                return perceptron.cross_entropy(a, y) + LAM * discrepancy(z, past)

            leaves = [leaf.copy() for leaf in (*w[:2], *heads[k], *policy)]
            for _ in range(2):
                slope = perceptron.slopes(objective, leaves)
                leaves = [a - RATE * b for a, b in zip(leaves, slope, strict=True)]
            heads[k] = leaves[2:4]
            half = [(a + b) / 2 for a, b in zip(heads[k], w[2:], strict=True)]
            uploads.append([*leaves[:2], *half, *leaves[4:]])
        mean = perceptron.averaged(uploads, cohort)
        w, policy = mean[:4], mean[4:]
        perceptron.assert_weights(state.server, mean)
        perceptron.assert_clients(state.clients, heads)
    x, _ = perceptron.examples(1)
    z, h = perceptron.features(w, x), heads[int(cohort[0])]
    own = jax.tree.map(lambda leaf: leaf[cohort[0]], state.clients)
    for model, wanted in (
        (
            method.personal(None, state.server, own, None),
            logits(z, policy, h, w[2:], context(h)),
        ),
        (method.newcomer(None, state.server, None), perceptron.logits(w, z)),
    ):
        found = jax.jit(method.predict)(model, Batch.full(x))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_head_of_several_layers_is_refused():
    job = tiny.TINY.replace(algorithm="fedcp", model="htresnet4:hidden=(8,)")
    with pytest.raises(ValueError, match="expected one dense layer of") as error:
        begin.check_method(job, None, None)
    assert "\n" not in str(error.value)
