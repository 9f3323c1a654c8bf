"""How sure predictions are, and whether that tells what a client does not know.

A client holds the classes of its training rows. Detection of others: the area under
the ROC curve is the share of pairs, a row of a class that the client does not hold and
one of its own rows of classes that it holds, of which the first has the predictive
entropy that is greater. A tie is half a pair. The rows of others are the same for all
clients; each leaves out those of classes that it holds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.minibatches import in_batches
from pfljax.core.types import Array, Batch, ClientData, Examples


class Foreign(NamedTuple):
    """Rows of all clients, and who holds which class."""

    examples: Examples  # [F, ...], the same for all clients
    held: Any  # bool[K] of one client, bool[G, K] of several that share their rows


def entropy(log_p: Array) -> Array:
    """Of predictions [..., K], in nats, f32[...]."""
    # Where p is 0 so is p log p; of what has diverged it stays NaN.
    summands = jnp.where(jnp.isneginf(log_p), 0, jnp.exp(log_p) * log_p)
    return -summands.sum(-1)


def brier(log_p: Array, y: Array) -> Array:
    """Squared distance of predictions [..., K] from the truth, 0 to 2, f32[...]."""
    truth = jax.nn.one_hot(y, log_p.shape[-1])
    return jnp.square(jnp.exp(log_p) - truth).sum(-1)


def entropies(
    predict: Callable[[Batch], Array],
    examples: Examples,
    batch_size: int,
    at_once: int,
) -> Array:
    """Predictive entropy of the rows, f32[..., F]; `at_once` are predicted at once.

    `predict` makes logits [..., n, B, K] of batches [n, B].
    """
    count = examples.y.shape[0]
    passes = -(-count // at_once)
    # Past the end is the last row, whose entropy is cut off again.
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
    foreign: Foreign,
    of_foreign: Array,
) -> dict[str, Array]:
    """Per row [B], or [B, G]: 1 where its class is held, and its share of pairs won.

    `own` f32[B] and `of_foreign` f32[F] are entropies, `y` and `mask` those of `own`.
    """
    held = jnp.moveaxis(jnp.asarray(foreign.held), -1, 0)  # bool[K, ...]
    unknown = ~held[foreign.examples.y]
    count = unknown.sum(0)
    greater = of_foreign > own[:, None]
    equal = of_foreign == own[:, None]
    won = jnp.tensordot(greater + 0.5 * equal, unknown.astype(jnp.float32), 1)
    # Who holds every class has no pair.
    known = held[y] & (count > 0)
    counted = jnp.reshape(mask, (-1, *(1,) * count.ndim)) * known
    return {"held": counted, "detected": counted * won / jnp.maximum(count, 1)}


def foreign_rows(
    train: ClientData, judged: ClientData, num_classes: int, count: int
) -> Foreign:
    """The rows `even_rows` of those `judged`; `held` is bool[C, K].

    Of a federation on the host, before its rows are placed.
    """
    chosen = even_rows(judged, count)
    pool = judged.examples
    examples = jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], pool)
    return Foreign(examples, classes_held(train, num_classes))


def even_rows(judged: ClientData, count: int) -> np.ndarray:
    """About `count` rows of the pool, evenly out of those `judged`: i64[F]."""
    # Clients may share their test rows: a span that comes twice is one.
    spans = np.unique(np.stack([judged.offset, judged.size], axis=1), axis=0)
    rows = np.concatenate([first + np.arange(size) for first, size in spans])
    even = np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)
    return rows[even]


def classes_held(train: ClientData, num_classes: int) -> np.ndarray:
    """Which classes each client trains on, bool[C, K]."""
    labels = np.asarray(train.examples.y)
    offset = np.asarray(train.offset)
    held = np.zeros((len(offset), num_classes), bool)
    for client, size in enumerate(np.asarray(train.size)):
        held[client, labels[offset[client] : offset[client] + size]] = True
    return held


def places(whose: np.ndarray) -> np.ndarray:
    """The place of each client among those of its span `whose`, i[C]."""
    order = np.argsort(whose, kind="stable")
    in_order = whose[order]
    position = np.empty_like(order)
    position[order] = np.arange(len(order)) - np.searchsorted(in_order, in_order)
    return position


def by_span(foreign: Foreign, whose: np.ndarray, count: int) -> Foreign:
    """`held` bool[count, G, K] of the clients of each span, at their `places`.

    Places that nobody fills hold all classes.
    """
    position = places(whose)
    held = np.ones((count, position.max() + 1, foreign.held.shape[-1]), bool)
    held[whose, position] = foreign.held
    return foreign._replace(held=held)
