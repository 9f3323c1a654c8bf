import jax
import jax.numpy as jnp
import numpy as np
import pytest

import perceptron
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.global_model import _class_gaussians as gaussians
from pfljax.algorithms.global_model._class_gaussians import Moments, Pooled, pool
from pfljax.algorithms.global_model.ccvr import Server, ccvr
from pfljax.conformance import Case, toy
from pfljax.core import tree

# Means, counts and scatters of three classes and four features, in a second exchange.
MOMENTS = 4 * 3 * (4 + 1 + 4 * 4)
SENT = (2 * toy.WHOLE, toy.WHOLE + MOMENTS)
CONFORMANCE = [
    Case("ccvr", bytes=SENT, sends_statistics=True),
    Case("ccvr", {"draws": 20, "finetune": 2}, bytes=SENT, sends_statistics=True),
]

TASK = toy.classifier()
TRAIN, _ = toy.ragged()


def of_client(w, data):
    """Its moments, in batches that do not divide its examples."""
    return gaussians.measure(TASK, w, data, 4)


def stack(*moments):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *moments)


def test_the_pooled_gaussians_against_numpy():
    """Of clients together, the last of which does not report, and of a split client."""
    w = TASK.init(jax.random.key(3))
    ids, mask = [1, 0, 6, 3], [1, 1, 1, 0]
    sent = stack(*(of_client(w, toy.one(TRAIN, k)) for k in ids))
    mean, covariance, count = pool(sent, toy.cohort(mask))
    pairs = [perceptron.examples(k) for k in ids[:3]]
    x, y = (np.concatenate(each) for each in zip(*pairs, strict=True))
    z = perceptron.features(perceptron.weights(w), x)
    for label in range(3):
        own = z[y == label]
        assert count[label] == len(own) > 1
        np.testing.assert_allclose(mean[label], own.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(covariance[label], np.cov(own.T), atol=1e-5)
    whole = toy.one(TRAIN, 6)
    parts = (
        whole._replace(size=whole.size - 9),
        whole._replace(offset=whole.offset + whole.size - 9, size=jnp.int32(9)),
    )
    split = pool(stack(*(of_client(w, part) for part in parts)), toy.cohort([1, 1]))
    toy.assert_close(split, pool(stack(of_client(w, whole)), toy.cohort([1])), 1e-5)


@pytest.mark.slow
def test_drawn_features_follow_the_gaussians():
    """Also a singular one; a class with fewer than two examples counts nothing."""
    root = np.array([[1.0, 0, 0, 0], [2, 0.5, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]])
    covariance = np.stack([root @ root.T, np.zeros((4, 4)), np.eye(4)])
    mean = np.arange(12.0).reshape(3, 4)
    pooled = Pooled(*map(jnp.asarray, (mean, covariance, [5.0, 2, 1])))
    batch = gaussians.draw(TASK, pooled, 5000, jax.random.key(0))
    z = np.asarray(batch.x).reshape(3, 5000, 4)
    np.testing.assert_allclose(z.mean(1), mean, atol=0.1)
    np.testing.assert_allclose(np.cov(z[0].T), covariance[0], atol=0.2)
    np.testing.assert_allclose(z[1], np.broadcast_to(mean[1], (5000, 4)), atol=1e-3)
    np.testing.assert_array_equal(batch.y.reshape(3, -1)[:, 0], [0, 1, 2])
    np.testing.assert_array_equal(batch.mask.reshape(3, -1)[:, 7], [1, 1, 0])


def test_the_head_of_two_gaussians_is_the_linear_discriminant():
    """Of one covariance: along Sigma^-1 (mu_0 - mu_1); the body stays."""
    root = np.array([[1.0, 0, 0, 0], [0.6, 1, 0, 0], [0, -0.5, 1, 0], [0, 0, 0, 0.7]])
    sigma = root @ root.T
    mean = np.array([[1.0, 0, 0.5, 0], [0, 1, 0, 0.5], [0, 0, 0, 0]])
    count = np.array([4.0, 4, 0])
    scatter = 3 * np.stack([sigma, sigma, np.zeros((4, 4))])
    sent = Moments(*(jnp.asarray(a)[None] for a in (mean, count, scatter)))
    method = ccvr(TASK, toy.full_batch(), draws=4000, server_steps=400, server_lr=1.0)
    w = TASK.init(jax.random.key(0))
    w["head"] = tree.zeros(w["head"])
    server = method.init(w, 4, jax.random.key(0))
    after = jax.jit(method.then.aggregate)(server, sent, toy.cohort([1]))
    model = method.server_model(after)
    toy.assert_same(model["body"], w["body"])
    toy.assert_same(after.w, w)
    kernel = np.asarray(model["head"]["kernel"])
    found = kernel[:, 0] - kernel[:, 1]
    wanted = np.linalg.solve(sigma, mean[0] - mean[1])
    cosine = found @ wanted / np.linalg.norm(found) / np.linalg.norm(wanted)
    assert cosine > 0.99


def test_the_first_exchange_is_fedavg():
    """The head is that of the new model before it is calibrated."""
    method = ccvr(TASK, toy.full_batch())
    w, other = (TASK.init(jax.random.key(seed)) for seed in range(2))
    server = Server(w, tree.zeros(tree.split(w, tree.matches(TASK.groups, "head"))[0]))
    uploads = stack(w, other)
    after = method.aggregate(server, uploads, toy.cohort([1, 1]))
    wanted = fedavg(TASK, toy.full_batch()).aggregate(w, uploads, toy.cohort([1, 1]))
    toy.assert_same(after.w, wanted)
    toy.assert_same(method.server_model(after), wanted)
