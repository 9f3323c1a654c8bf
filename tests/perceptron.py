"""The toy's classifier in NumPy: features, logits, and gradients by hand.

z = relu(x W + b), logits = z V + c. Methods of `algorithms/distillation` that send
features or logits by class are played again with it.
"""

import jax
import numpy as np

from pfljax import models
from pfljax.conformance import toy
from pfljax.core.communication import trace_exchanges

CLASSES, FEATURES, RATE = 3, 4, 0.1
FULL = toy.full_batch(epochs=2, rate=RATE)  # two steps on all examples of a client


def weights(params):
    """[b, W, c, V] of the toy's parameters, f64."""
    return [np.float64(leaf) for leaf in jax.tree.leaves(params)]


def of_client(states, k):
    """[b, W, c, V] of client k."""
    return weights(jax.tree.map(lambda leaf: leaf[k], states))


def examples(k, data=None):
    """(x, y) of client k."""
    data = data or toy.ragged()[0]
    span = slice(int(data.offset[k]), int(data.offset[k] + data.size[k]))
    return np.float64(data.examples.x[span]), np.asarray(data.examples.y[span])


def features(w, x):
    return np.maximum(x @ w[1] + w[0], 0)


def logits(w, z):
    return z @ w[3] + w[2]


def softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def one_hot(y, classes=CLASSES):
    return np.eye(classes)[y]


def cross_entropy_slope(a, y):
    """The slope in the logits of the mean cross-entropy."""
    return (softmax(a) - one_hot(y)) / len(y)


def stepped(w, x, of_logits, of_features=0.0, rate=RATE):
    """[b, W, c, V] after a step along the slopes in logits and in features."""
    z = features(w, x)
    of_z = (of_logits @ w[3].T + of_features) * (z > 0)
    slopes = [of_z.sum(0), x.T @ of_z, of_logits.sum(0), z.T @ of_logits]
    return [leaf - rate * slope for leaf, slope in zip(w, slopes, strict=True)]


def by_class(z, y, classes=CLASSES):
    """(mean of the examples of each class, 0 where there is none; their number)."""
    count = np.array([(y == j).sum() for j in range(classes)])
    mean = [
        z[y == j].mean(0) if n else np.zeros(z.shape[1]) for j, n in enumerate(count)
    ]
    return np.array(mean), count


def assert_clients(states, expected):
    """The states of all clients, [b, W, c, V] each."""
    for k, w in enumerate(expected):
        for leaf, wanted in zip(of_client(states, k), w, strict=True):
            np.testing.assert_allclose(leaf, wanted, rtol=1e-4, atol=1e-5)


def exchanges_of_two_architectures(factory):
    """The exchanges and servers of two bodies with the same number of features."""
    shapes = []
    for hidden in ((FEATURES,), (6, 5, FEATURES)):
        task = models.task(models.mlp(CLASSES, hidden=hidden), (3,))
        method = factory(task, FULL)
        exchange, *_ = trace_exchanges(method, task, 2, (3,))
        server = jax.eval_shape(
            lambda task=task, method=method: method.init(
                task.init(jax.random.key(0)), 2, jax.random.key(0)
            )
        )
        shapes.append((server, exchange.message, exchange.upload))
    return shapes


def averaged(uploads, cohort, weight=toy.SIZES):
    """Leaves of the clients of a cohort, averaged by their numbers of examples."""
    weight = np.array(weight)[cohort]
    return [np.average(leaf, 0, weight) for leaf in zip(*uploads, strict=True)]


def assert_weights(params, expected):
    """The leaves of `params` are the expected ones."""
    for leaf, wanted in zip(weights(params), expected, strict=True):
        np.testing.assert_allclose(leaf, wanted, rtol=1e-4, atol=1e-5)


def slopes(value, leaves, step=1e-5):
    """The gradient of value(leaves) by central differences, in float64."""
    found = []
    for leaf in leaves:
        slope = np.zeros_like(leaf)
        for place in np.ndindex(leaf.shape):
            kept = leaf[place]
            leaf[place] = kept + step
            above = value(leaves)
            leaf[place] = kept - step
            slope[place] = (above - value(leaves)) / (2 * step)
            leaf[place] = kept
        found.append(slope)
    return found


def cross_entropy(a, y):
    """The mean cross-entropy of logits."""
    return -np.log(softmax(a)[np.arange(len(y)), y]).mean()


def assert_averages(servers, cohorts, upload_of):
    """Every server is the mean, by examples, of upload_of([b, W, c, V], k) over k."""
    sizes = np.array(toy.SIZES)
    w = weights(servers[0])
    for server, ids in zip(servers[1:], cohorts, strict=True):
        uploads = [upload_of(w, k) for k in ids]
        w = [
            np.average(leaves, axis=0, weights=sizes[ids])
            for leaves in zip(*uploads, strict=True)
        ]
        for leaf, wanted in zip(weights(server), w, strict=True):
            np.testing.assert_allclose(leaf, wanted, rtol=1e-4, atol=1e-5)


def run_averaging(factory, **options):
    """(models of the server, cohorts) of 3 rounds of 5 of 8 clients, of `FULL`."""
    task, (train, _) = toy.classifier(), toy.ragged()
    method = factory(task, FULL, **options)
    states, _ = toy.run_rounds(method, task, FULL, train, cohort=5)
    cohorts = [np.asarray(state.cohort) for state in states[1:]]
    return [method.server_model(state.server) for state in states], cohorts


def cosine(z, other):
    """(the cosines of rows, their slopes in z); 0 where a row is zero."""
    lengths = [np.linalg.norm(a, axis=1, keepdims=True) for a in (z, other)]
    known = lengths[0] * lengths[1] > 0
    own, length = (np.where(known, a, 1) for a in lengths)
    value = np.where(known, (z * other).sum(1, keepdims=True) / (own * length), 0)
    return value, np.where(known, (other / length - value * z / own) / own, 0)


def contrast_slope(z, near, far, temperature):
    """The slope in z of the mean contrast of MOON."""
    (a, towards), (b, back) = cosine(z, near), cosine(z, far)
    share = 1 / (1 + np.exp((a - b) / temperature))
    return share * (back - towards) / temperature / len(z)
