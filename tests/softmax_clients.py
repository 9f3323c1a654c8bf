"""Clients of `toy.ragged` with a linear softmax model, and their losses in NumPy."""

import jax
import numpy as np

from pfljax.conformance import toy
from pfljax.core.losses import data_loss

TRAIN, _ = toy.ragged()


def linear():
    """The task of logits x W, of 3 features and 3 classes."""

    def logits(w, batch, key):
        return batch.x @ w["head"]

    def loss(w, batch, key):
        return data_loss(toy.quadratic(), logits(w, batch, key), batch)

    return toy.quadratic()._replace(
        init=lambda key: {"head": jax.random.normal(key, (3, 3))},
        logits=logits,
        loss=loss,
        predict=lambda w, batch: logits(w, batch, None),
        groups={"head": "head"},
        modules={"head": 0},
        num_modules=1,
    )


def examples(k):
    """x and one-hot y of client k."""
    data = toy.one(TRAIN, k)
    own = slice(int(data.offset), int(data.offset + data.size))
    return np.asarray(data.examples.x)[own], np.eye(3)[np.asarray(data.examples.y)[own]]


def probabilities(k, w):
    """Of each class at each example of client k, [n, 3]."""
    exponent = np.exp(examples(k)[0] @ w)
    return exponent / exponent.sum(1, keepdims=True)


def losses(k, w):
    """The cross-entropy of each example of client k, [n]."""
    return -np.log((probabilities(k, w) * examples(k)[1]).sum(1))


def gradient(k, w, weight=1.0):
    """Of the mean over client k's examples of their weight times their loss."""
    x, y = examples(k)
    slope = (probabilities(k, w) - y) / len(x)
    return (np.broadcast_to(weight, len(x)) * x.T) @ slope
