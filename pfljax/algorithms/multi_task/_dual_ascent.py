"""A linear model's hinge loss in its dual: ascent by one row after another (SDCA).

Shalev-Shwartz, Zhang, JMLR 2013, https://arxiv.org/abs/1209.1873; as a local solver of
CoCoA, whose clients each stretch their own changes, for the others change as well.

Class c is told from all others: y_ic = 1 in rows of class c and -1 in the others, and
z_ic = <x_ic, w> is a logit. A row has a dual variable of each class, alpha_ic = y_ic a
with 0 <= a <= 1, and  b = sum_i sum_c alpha_ic x_ic / n. With all other variables fixed
the best a is in closed form, for a model that is  w + stretch * (the change of b).
"""

import jax
import jax.numpy as jnp

from pfljax.algorithms._row_outputs import number_examples
from pfljax.core import tree
from pfljax.core.training import over_batches
from pfljax.core.types import (
    Array,
    Batch,
    ClientData,
    Key,
    Local,
    Metrics,
    Params,
    Task,
    Turn,
)


def ascend(
    task: Task,
    w: Params,
    alpha: Array,
    data: ClientData,
    turn: Turn,
    local: Local,
    stretch: Array,
) -> tuple[Array, Params, Metrics]:
    """(alpha, how much b changed, metrics) after `turn.steps` minibatches.

    A step visits the rows of its minibatch one after another. "loss" is the hinge loss
    of a row before its visit, the mean over classes.

    Args:
      task: a model that is linear in its parameters.
      w: where the model stands.
      alpha: f32[N, K], signed; rows past the client's last are not used.
      data: the client's training rows.
      turn: the client's budget and key.
      local: the batch size; there is no learning rate.
      stretch: how far the model goes for a change of b, f32[].
    """
    labels = data.examples.y

    def visit(carry: tuple, row: Batch) -> tuple[tuple, Array]:
        alpha, change = carry
        one = jax.tree.map(lambda leaf: leaf[None], row)
        label = tree.take(labels, data.offset + row.y)
        y = 2 * jax.nn.one_hot(label, task.num_classes) - 1

        def logits(params: Params) -> Array:
            return task.logits(params, one, None)[0]

        z, transposed = jax.vjp(logits, tree.axpy(stretch, change, w))
        # Each class has parameters of its own: this is |x_ic|^2, class by class.
        square = logits(*transposed(jnp.ones_like(z)))
        a = alpha[row.y] * y
        missing = 1 - y * z
        # A row of zeros, or a client without relations: 0 / 0 would be NaN.
        curvature = jnp.maximum(stretch * square, jnp.finfo(z.dtype).tiny)
        best = a + data.size * missing / curvature
        moved = row.mask * (jnp.clip(best, 0, 1) - a) * y
        (added,) = transposed(moved / jnp.maximum(data.size, 1))
        loss = row.mask * jnp.mean(jnp.maximum(missing, 0))
        return (alpha.at[row.y].add(moved), tree.add(change, added)), loss

    def step(carry: tuple, batch: Batch, key: Key) -> tuple[tuple, Metrics]:
        carry, losses = jax.lax.scan(visit, carry, batch)
        count = jnp.maximum(jnp.sum(batch.mask), 1)
        return carry, {"loss": jnp.sum(losses) / count}

    start = alpha, tree.zeros(w)
    rows = number_examples(data)
    (alpha, change), metrics = over_batches(step, start, rows, turn, local)
    return alpha, change, metrics
