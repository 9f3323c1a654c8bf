"""The uncertainty of predictions, and out-of-distribution detection by it.

A client knows the classes of its training examples. Out-of-distribution detection is
measured by the area under the ROC curve: of all pairs of an example of a class that the
client does not know and an own example of a class that it knows, it is the share in
which the first has the greater predictive entropy. A tie counts half a pair. The
out-of-distribution examples are the same for all clients; each client leaves out those
of classes that it knows.
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
    """Examples of all clients, and which client holds which class."""

    examples: Examples  # [F, ...], the same for all clients
    held: Any  # bool[K] of one client, bool[G, K] of several with one test set


def entropy(log_p: Array) -> Array:
    """The entropy f32[...] of predictions [..., K], in nats."""
    # Where p is 0 so is p log p; for a model that has diverged it stays NaN.
    summands = jnp.where(jnp.isneginf(log_p), 0, jnp.exp(log_p) * log_p)
    return -summands.sum(-1)


def brier(log_p: Array, y: Array) -> Array:
    """Squared distance f32[...] of predictions [..., K] from the truth, 0 to 2."""
    truth = jax.nn.one_hot(y, log_p.shape[-1])
    return jnp.square(jnp.exp(log_p) - truth).sum(-1)


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
    own: Array,
    y: Array,
    mask: Array,
    ood: OodExamples,
    ood_entropy: Array,
) -> dict[str, Array]:
    """For each example [B] or [B, G]: whether its class is held, and its pairs won.

    Pairs won are a share. `own` f32[B] and `ood_entropy` f32[F] are entropies; `y` and
    `mask` belong to the examples of `own`.
    """
    held = jnp.moveaxis(jnp.asarray(ood.held), -1, 0)  # bool[K, ...]
    unknown = ~held[ood.examples.y]
    count = unknown.sum(0)
    greater = ood_entropy > own[:, None]
    equal = ood_entropy == own[:, None]
    won = jnp.tensordot(greater + 0.5 * equal, unknown.astype(jnp.float32), 1)
    # A client that holds every class has no pair.
    known = held[y] & (count > 0)
    counted = jnp.reshape(mask, (-1, *(1,) * count.ndim)) * known
    return {"held": counted, "detected": counted * won / jnp.maximum(count, 1)}


def select_ood(
    train: ClientData, evaluated: ClientData, num_classes: int, count: int
) -> OodExamples:
    """The examples at `select_evenly` of those `evaluated`; `held` is bool[C, K].

    Both are of a federation on the host, before its examples are placed on devices.
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
    """The classes that each client trains on, bool[C, K]."""
    labels = np.asarray(train.examples.y)
    offset = np.asarray(train.offset)
    held = np.zeros((len(offset), num_classes), bool)
    for client, size in enumerate(np.asarray(train.size)):
        held[client, labels[offset[client] : offset[client] + size]] = True
    return held


def count_before(span: np.ndarray) -> np.ndarray:
    """The number i[C] of earlier clients with the same `span` i[C]."""
    order = np.argsort(span, kind="stable")
    in_order = span[order]
    position = np.empty_like(order)
    position[order] = np.arange(len(order)) - np.searchsorted(in_order, in_order)
    return position


def by_span(ood: OodExamples, span: np.ndarray, count: int) -> OodExamples:
    """`held` bool[count, G, K] of the clients of each span, in the order of clients.

    Places without a client hold all classes.
    """
    position = count_before(span)
    held = np.ones((count, position.max() + 1, ood.held.shape[-1]), bool)
    held[span, position] = ood.held
    return ood._replace(held=held)
