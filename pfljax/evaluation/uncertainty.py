"""Entropy and Brier score, and how well the entropy detects classes new to a client.

A model should be less certain about examples of classes that its client has not trained
on. The area under the ROC curve ("auroc") measures this. It is a mean over pairs of one
of the client's own examples, of a class that it has trained on, and one example of a
class that it has not: 1 if the second has the greater predictive entropy, 1/2 if both
are equal, and 0 otherwise.

The examples of other classes are taken from one set, which is the same for all clients;
each client leaves out the classes that it has trained on. There are three steps:

1. `select_ood` chooses the set and finds the classes of each client, on the host.
2. `entropies` computes the entropy of the whole set under the model of a client.
3. `detect` computes, for each example of the client, the mean over its pairs with the
   examples of other classes. `pfljax.evaluation.metrics` computes the mean of these.

The server's model scores the examples of clients that share a test set once, for the
classes of each of these clients: see `group_by_span`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.minibatches import in_batches
from pfljax.core.types import Array, Batch, ClientData, Examples


class OodExamples(NamedTuple):
    """F examples that are the same for all clients, and the classes of clients."""

    examples: Examples  # [F, ...]
    held: Any  # bool[K] of one client, bool[G, K] of G clients with one test set


def entropy(log_p: Array) -> Array:
    """The entropy f32[...] of predictions [..., K], in nats."""
    # Where p is 0 so is p log p; for a model that has diverged it stays NaN.
    summands = jnp.where(jnp.isneginf(log_p), 0, jnp.exp(log_p) * log_p)
    return -summands.sum(-1)


def brier(log_p: Array, y: Array) -> Array:
    """Squared distance f32[...] of predictions [..., K] from the truth, 0 to 2."""
    truth = jax.nn.one_hot(y, log_p.shape[-1])
    return jnp.square(jnp.exp(log_p) - truth).sum(-1)


def select_ood(
    train: ClientData, evaluated: ClientData, num_classes: int, count: int
) -> OodExamples:
    """About `count` of the examples in `evaluated`, and `held` bool[C, K].

    `train` and `evaluated` are of a federation on the host, before its examples are
    placed on devices.
    """
    chosen = select_evenly(evaluated, count)
    pool = evaluated.examples
    examples = jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], pool)
    return OodExamples(examples, classes_held(train, num_classes))


def select_evenly(evaluated: ClientData, count: int) -> np.ndarray:
    """Indices i64[F] of about `count` of the evaluated examples, evenly spaced."""
    # Clients may share their test examples: a span that comes twice is one.
    spans = np.unique(np.stack([evaluated.offset, evaluated.size], axis=1), axis=0)
    indices = np.concatenate([first + np.arange(size) for first, size in spans])
    even = np.linspace(0, len(indices) - 1, min(count, len(indices))).astype(int)
    return indices[even]


def classes_held(train: ClientData, num_classes: int) -> np.ndarray:
    """Whether each client trains on each class, bool[C, K]."""
    labels = np.asarray(train.examples.y)
    offset = np.asarray(train.offset)
    held = np.zeros((len(offset), num_classes), bool)
    for client, size in enumerate(np.asarray(train.size)):
        held[client, labels[offset[client] : offset[client] + size]] = True
    return held


def entropies(
    predict: Callable[[Batch], Array],
    examples: Examples,
    batch_size: int,
    at_once: int,
) -> Array:
    """Predictive entropy f32[..., F] of the examples, `at_once` at a time.

    `predict` makes logits [..., n, B, K] of batches [n, B].
    """
    count = examples.y.shape[0]
    passes = -(-count // at_once)
    # Past the end the last example is repeated, and its entropy is cut off again.
    index = jnp.minimum(jnp.arange(passes * at_once), count - 1)

    def batch_entropies(index: Array) -> Array:
        x, y = tree.take(examples, index)
        batch = Batch(x, y, jnp.ones(at_once))
        logits = predict(in_batches(batch, batch_size))
        by_batch = entropy(jax.nn.log_softmax(logits.astype(jnp.float32)))
        return by_batch.reshape(*by_batch.shape[:-2], at_once)

    by_pass = jax.lax.map(batch_entropies, index.reshape(passes, at_once))
    in_order = jnp.moveaxis(by_pass, 0, -2)
    return in_order.reshape(*in_order.shape[:-2], -1)[..., :count]


def detect(
    own_entropy: Array,
    y: Array,
    mask: Array,
    ood: OodExamples,
    ood_entropy: Array,
) -> dict[str, Array]:
    """Two numbers of each own example of a batch, [B] or [B, G].

    "held" is 1 if the example has pairs: the client has trained on its class, and some
    other class is new to the client. "detected" is the mean over these pairs, or 0.

    Args:
      own_entropy: f32[B], of the own examples.
      y: their labels i32[B].
      mask: f32[B], 0 for examples that pad the batch.
      ood: the set, and the classes of one client or of G.
      ood_entropy: f32[F], of the set.
    """
    is_held = jnp.moveaxis(jnp.asarray(ood.held), -1, 0)  # bool[K, ...]
    is_new = ~is_held[ood.examples.y]  # bool[F, ...]
    pairs = is_new.sum(0)
    greater = ood_entropy > own_entropy[:, None]  # bool[B, F]
    equal = ood_entropy == own_entropy[:, None]
    won = jnp.tensordot(greater + 0.5 * equal, is_new.astype(jnp.float32), 1)
    mask = jnp.reshape(mask, (-1, *(1,) * pairs.ndim))
    held = mask * (is_held[y] & (pairs > 0))
    return {"held": held, "detected": held * won / jnp.maximum(pairs, 1)}


def group_by_span(ood: OodExamples, span: np.ndarray, count: int) -> OodExamples:
    """The set with `held` bool[count, G, K]: the classes of the clients of each span.

    A span is a test set, and `span` i[C] has its number for each client. G is the
    greatest number of clients with one span. Places without a client hold all classes.
    """
    position = positions_in_span(span)
    held = np.ones((count, position.max() + 1, ood.held.shape[-1]), bool)
    held[span, position] = ood.held
    return ood._replace(held=held)


def positions_in_span(span: np.ndarray) -> np.ndarray:
    """The position i[C] of each client among those with the same `span` i[C]."""
    order = np.argsort(span, kind="stable")
    in_order = span[order]
    position = np.empty_like(order)
    position[order] = np.arange(len(order)) - np.searchsorted(in_order, in_order)
    return position
