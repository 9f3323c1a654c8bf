"""Rows that clients send to the server as features, and how it trains on them.

A client has N rows to fill, as many as the largest has; those past its last are
labelled -1 and left out. Of two clients of 3 and 5 rows, in batches of 2:

    client  0  0  0  1  1  1        N = 5, padded to 6
    rows   01 2-  - 01 23 4-        the third batch has no row: no step is taken
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax.algorithms._row_outputs import compute_outputs
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.types import Array, Batch, ClientData, Cohort, Params, Task, Turn

Step = Callable[[Any, Any], tuple[Any, Array]]  # (carry, part) -> (carry, logits)
# (params, batch of features, logits that were sent) -> (loss, logits)
Objective = Callable[[Params, Batch, Array], tuple[Array, Array]]


class SentRows(NamedTuple):
    """What a client makes of its rows; leaves [M, ...] where they are stacked."""

    features: Any  # f32[N, ...], 0 past the last row
    logits: Any  # f32[N, K], 0 past the last row
    # Not i32: between devices, uploads of one type are one exchange.
    labels: Any  # f32[N], -1 past the last row
    turn: Any  # f32[], clients of smaller numbers come first


def from_client(
    task: Task,
    params: Params,
    data: ClientData,
    turn: Turn,
    count: int,
    batch_size: int,
) -> SentRows:
    """The rows of a client by its model in evaluation mode, `count` at most."""

    def value(batch: Batch) -> Any:
        z = task.features(params, batch, None)
        return z, task.head(params, z), batch.y.astype(jnp.float32)

    number = jnp.arange(count)
    existing = jnp.minimum(number, jnp.maximum(data.size - 1, 0))
    z, logits, y = compute_outputs(value, data, existing, batch_size)
    exists = number < data.size

    def if_exists(leaf: Array, other: int) -> Array:
        ones = (1,) * (leaf.ndim - 1)
        return jnp.where(exists.reshape(-1, *ones), leaf, other)

    return SentRows(
        features=if_exists(z, 0),
        logits=if_exists(logits, 0),
        labels=if_exists(y, -1),
        # Of the client's own key, so that its number says nothing.
        turn=jax.random.uniform(derive(turn.key, "turn at the server")),
    )


def in_turn(sent: SentRows, cohort: Cohort) -> tuple[SentRows, Array]:
    """(rows by the turns of their clients, whose they are); the absent have none.

    Both are those of `aggregation.gather`. The absent have the id C, past the end.
    """
    order = jnp.argsort(sent.turn)
    sent, ids, mask = tree.take((sent, cohort.ids, cohort.mask), order)
    labels = jnp.where(mask[:, None] > 0, sent.labels, -1)
    return sent._replace(labels=labels), jnp.where(mask > 0, ids, cohort.num_clients)


def in_batches(sent: SentRows, batch_size: int) -> tuple[Batch, Array]:
    """(batches of features, their logits), client after client, [M n, B, ...]."""

    def cut(leaf: Array) -> Array:
        clients, count, *shape = leaf.shape
        padding = jnp.zeros((clients, -count % batch_size, *shape), leaf.dtype)
        return jnp.concatenate([leaf, padding], 1).reshape(-1, batch_size, *shape)

    exists = cut((sent.labels >= 0).astype(jnp.float32))
    labels = cut(jnp.maximum(sent.labels, 0)).astype(jnp.int32)
    return Batch(cut(sent.features), labels, exists), cut(sent.logits)


def stepping(objective: Objective, optimizer: optax.GradientTransformation) -> Step:
    """A step of (params, moments) on a part of `in_batches`, and the logits before."""

    def learn(carry: Any, batch: Batch, sent: Array) -> Any:
        params, moments = carry
        slope_of = jax.grad(objective, has_aux=True)
        grads, logits = slope_of(params, batch, sent)
        updates, moments = optimizer.update(grads, moments, params)
        return (optax.apply_updates(params, updates), moments), logits

    def rest(carry: Any, batch: Batch, sent: Array) -> Any:
        return carry, jnp.zeros_like(sent)

    def step(carry: Any, part: Any) -> Any:
        batch, sent = part
        return jax.lax.cond(batch.mask.sum() > 0, learn, rest, carry, batch, sent)

    return step


def over_epochs(
    step: Step,
    carry: Any,
    parts: tuple[Batch, Array],
    epochs: int,
) -> tuple[Any, Array]:
    """(carry, logits of each part in the last epoch) after the parts in their order."""

    def epoch(index: Array, loop: Any) -> Any:
        carry, _ = loop
        return jax.lax.scan(step, carry, parts)

    _, sent = parts
    return jax.lax.fori_loop(0, epochs, epoch, (carry, jnp.zeros_like(sent)))
