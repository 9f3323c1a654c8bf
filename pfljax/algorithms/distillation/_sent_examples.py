"""Examples that clients send to the server as features, and the training on them.

Each client has room for N examples, the number of the largest client; unused places
have the label -1 and are left out. For two clients of 3 and 5 examples, in batches of
2:

    client    0  0  0  1  1  1      N = 5, padded to 6
    examples 01 2-  - 01 23 4-      the third batch is empty: no step is taken
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax.algorithms._example_outputs import compute_outputs
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.types import Array, Batch, ClientData, Cohort, Params, Task, Turn

Step = Callable[[Any, Any], tuple[Any, Array]]  # (carry, part) -> (carry, logits)
# (params, batch of features, logits that were sent) -> (loss, logits)
Objective = Callable[[Params, Batch, Array], tuple[Array, Array]]


class SentExamples(NamedTuple):
    """The outputs for a client's examples; leaves [M, ...] if they are stacked."""

    features: Any  # f32[N, ...], 0 past the last example
    logits: Any  # f32[N, K], 0 past the last example
    # Not i32: devices exchange uploads of one type at once.
    labels: Any  # f32[N], -1 past the last example
    turn: Any  # f32[], clients with smaller numbers come first


def from_client(
    task: Task,
    params: Params,
    data: ClientData,
    turn: Turn,
    count: int,
    batch_size: int,
) -> SentExamples:
    """At most `count` examples of a client, by its model in evaluation mode."""

    def value(batch: Batch) -> Any:
        z = task.features(params, batch, None)
        return z, task.head(params, z), batch.y.astype(jnp.float32)

    number = jnp.arange(count)
    existing = jnp.minimum(number, jnp.maximum(data.size - 1, 0))
    z, logits, y = compute_outputs(value, data, existing, batch_size)
    exists = number < data.size

    def if_exists(leaf: Array, other: int) -> Array:
        return jnp.where(tree.column(exists, leaf), leaf, other)

    return SentExamples(
        features=if_exists(z, 0),
        logits=if_exists(logits, 0),
        labels=if_exists(y, -1),
        # From the client's own key, so that its id does not matter.
        turn=jax.random.uniform(derive(turn.key, "turn at the server")),
    )


def in_turn(sent: SentExamples, cohort: Cohort) -> tuple[SentExamples, Array]:
    """(the examples in the order of their clients' turns, the ids of these clients).

    The arguments are those of `aggregation.gather`. Absent clients have no examples,
    and the id C, past the end.
    """
    order = jnp.argsort(sent.turn)
    sent, ids, mask = tree.take((sent, cohort.ids, cohort.mask), order)
    labels = jnp.where(mask[:, None] > 0, sent.labels, -1)
    return sent._replace(labels=labels), jnp.where(mask > 0, ids, cohort.num_clients)


def in_batches(sent: SentExamples, batch_size: int) -> tuple[Batch, Array]:
    """(batches of features, their logits), client after client, [M n, B, ...]."""

    def cut(leaf: Array) -> Array:
        clients, count, *shape = leaf.shape
        missing = -count % batch_size
        padding = jnp.zeros((clients, missing, *shape), leaf.dtype)
        padded = jnp.concatenate([leaf, padding], 1)
        return padded.reshape(-1, batch_size, *shape)

    exists = sent.labels >= 0
    labels = cut(jnp.maximum(sent.labels, 0))
    batches = Batch(
        x=cut(sent.features),
        y=labels.astype(jnp.int32),
        mask=cut(exists.astype(jnp.float32)),
    )
    return batches, cut(sent.logits)


def make_step(objective: Objective, optimizer: optax.GradientTransformation) -> Step:
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
    """(carry, logits of all parts in the last epoch) after the parts in order."""

    def epoch(index: Array, loop: Any) -> Any:
        carry, _ = loop
        return jax.lax.scan(step, carry, parts)

    _, sent = parts
    return jax.lax.fori_loop(0, epochs, epoch, (carry, jnp.zeros_like(sent)))
