"""Dual coordinate ascent (SDCA) on the hinge loss of a linear model.

Shalev-Shwartz, Zhang, JMLR 2013, https://arxiv.org/abs/1209.1873. It is a local solver
of CoCoA, where each client stretches its own changes, because the others change as
well.

Each class c is separated from all others: y_ic = 1 for examples of class c and -1 for
the others, and z_ic = <x_ic, w> is a logit. An example has a dual variable for each
class, alpha_ic = y_ic a with 0 <= a <= 1, and  b = sum_i sum_c alpha_ic x_ic / n.  With
all other variables fixed, the best a has a closed form, for a model that is
w + stretch * (the change of b).
"""

import jax
import jax.numpy as jnp

from pfljax.algorithms._example_outputs import number_examples
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
    """(alpha, the change of b, metrics) after `turn.steps` minibatches.

    A step visits the examples of its minibatch one after another. "loss" is the hinge
    loss of an example before its visit, averaged over classes.

    Args:
      task: a model that is linear in its parameters.
      w: the current model.
      alpha: f32[N, K], signed; entries past the client's last example are not used.
      data: the client's training examples.
      turn: the client's budget and key.
      local: the batch size; there is no learning rate.
      stretch: how far the model moves for a change of b, f32[].
    """
    labels = data.examples.y

    def visit(carry: tuple, example: Batch) -> tuple[tuple, Array]:
        alpha, change = carry
        batch = jax.tree.map(lambda leaf: leaf[None], example)
        label = tree.take(labels, data.offset + example.y)
        y = 2 * jax.nn.one_hot(label, task.num_classes) - 1

        def logits(params: Params) -> Array:
            return task.logits(params, batch, None)[0]

        z, transposed = jax.vjp(logits, tree.axpy(stretch, change, w))
        # Each class has its own parameters: this is |x_ic|^2 for each class.
        square = logits(*transposed(jnp.ones_like(z)))
        a = alpha[example.y] * y
        missing = 1 - y * z
        # For an example of zeros, or a client without relations, 0 / 0 would be NaN.
        curvature = jnp.maximum(stretch * square, jnp.finfo(z.dtype).tiny)
        best = a + data.size * missing / curvature
        moved = example.mask * (jnp.clip(best, 0, 1) - a) * y
        (added,) = transposed(moved / jnp.maximum(data.size, 1))
        loss = example.mask * jnp.mean(jnp.maximum(missing, 0))
        return (alpha.at[example.y].add(moved), tree.add(change, added)), loss

    def step(carry: tuple, batch: Batch, key: Key) -> tuple[tuple, Metrics]:
        carry, losses = jax.lax.scan(visit, carry, batch)
        count = jnp.maximum(jnp.sum(batch.mask), 1)
        return carry, {"loss": jnp.sum(losses) / count}

    start = alpha, tree.zeros(w)
    numbered = number_examples(data)
    (alpha, change), metrics = over_batches(step, start, numbered, turn, local)
    return alpha, change, metrics
