"""Models that nobody trained, mixtures and points of a plane, with their statistics.

Statistics do not mix as parameters do: the activations of a mixture have another mean
and a smaller variance than the mixed statistics say. So each such model gets those of a
pass over training examples, as in Izmailov et al., UAI 2018,
https://arxiv.org/abs/1803.05407. Each layer then puts out the means and deviations that
its mixed biases and scales say. This is what REPAIR restores in networks that have no
such layers. Jordan et al., ICLR 2023, https://arxiv.org/abs/2211.08403.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import requirements, statistics, tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.minibatches import take_examples
from pfljax.core.types import Array, Batch, ClientData, Key, Params, Task
from pfljax.landscape.repair import Predict, make_repair
from pfljax.landscape.stacked import mix_models

CHOICES = ("recompute", "repair", "mix")
REPAIRED = 1024  # examples of the one batch of `repair`, at most
EXAMPLES = 256  # of a batch, at most
BATCHES = 16  # at most; each reaches over all examples


class Recompute(NamedTuple):
    """How statistics are computed; it is hashed as a part of a program's name."""

    logits: Callable[..., Array]  # of the task
    batch_size: int


class Repair(NamedTuple):
    """How hidden units are repaired."""

    batch_size: int


def choose(
    task: Task, choice: str, train: ClientData | None, together: int = 1
) -> Recompute | Repair | None:
    """How statistics are computed; None if they are mixed, or there are none.

    To "repair" a model with running statistics is to recompute them. `together` is the
    number of clients of `train` whose examples count as one's.

    Raises:
      ValueError: the choice is unknown, or there are statistics and no examples.
    """
    requirements.require_known("statistics", choice, CHOICES)
    running = statistics.has_any(shapes_of_model(task))
    if choice == "mix" or (choice == "recompute" and not running):
        return None
    if train is None:
        raise ValueError(
            "train is None, expected training examples, for the statistics of models "
            "that nobody trained; give them, or statistics='mix'"
        )
    most = together * int(np.max(train.size, initial=1))
    if running:
        return Recompute(task.logits, min(EXAMPLES, most))
    return Repair(min(REPAIRED, most))


def mix(
    how: Recompute | Repair | None,
    predict: Predict,
    models: tuple[Params, ...],
    *train: ClientData,
) -> Callable[[Any, Array], tuple[Params, Callable[[Batch], Array]]]:
    """A function of (weights, keep) -> the sum of models by weights, and its `predict`.

    Where `keep` bool[] holds, its statistics are those of the sum.
    """

    find_predict = None
    if isinstance(how, Repair):
        step = -(-train[0].size.sum() // how.batch_size)
        batch = _take(train[0], step * jnp.arange(how.batch_size))
        find_predict = make_repair(predict, models, batch)

    def make(weights: Any, keep: Array) -> tuple[Params, Callable[[Batch], Array]]:
        model = mix_models(weights, models)
        if isinstance(how, Recompute):
            again = partial(recompute, how, train=train[0])
            model = jax.lax.cond(keep, lambda old: old, again, model)
        own = find_predict(weights, keep, model) if find_predict else predict
        return model, partial(own, model)

    return make


def recompute(how: Recompute, params: Params, train: ClientData) -> Params:
    """`params` with the running statistics of the examples of one or more clients.

    They are the means of those of batches, weighted by the number of examples, of which
    at most 4,096 are used. Without examples they stay as they are. `train` has offset
    and size i32[], or i32[R].
    """
    old, parameters = tree.split(params, statistics.mask(params))
    size = train.size.sum()
    batches = -(-size // how.batch_size)
    key = jax.random.key(0)  # of dropout, which is on as in training

    def change(old: Params, parameters: Params, batch: Batch, key: Key) -> Params:
        """old - new of a step in training mode, see `core.statistics.following`."""

        def total(old: Params) -> Array:
            return how.logits(tree.merge(old, parameters), batch, key).sum()

        return jax.grad(total)(old)

    # new = old - rate (old - batch). The rate is 1 - momentum, exact where no example
    # adds to it: in a model of zeros. A layer whose statistics never move has 0.
    zeros = tree.zeros(parameters)
    single = _take(train, jnp.arange(1))
    one, none = (change(tree.full(old, x), zeros, single, key) for x in (1.0, 0.0))
    rate = tree.sub(one, none)

    def add(number: Array, sums: tuple[Params, Array]) -> tuple[Params, Array]:
        # Every so many examples, so that a batch has examples of all clients.
        batch = _take(train, number + batches * jnp.arange(how.batch_size))
        step = change(old, parameters, batch, jax.random.fold_in(key, number))
        total, count = sums
        more = batch.mask.sum()
        return tree.axpy(more, step, total), count + more

    used = jnp.minimum(batches, BATCHES)
    nothing = (tree.zeros(old), jnp.float32(0))
    total, count = jax.lax.fori_loop(0, used, add, nothing)

    def move(old: Array, total: Array, rate: Array) -> Array:
        return old - total / (jnp.where(rate > 0, rate, 1) * jnp.maximum(count, 1))

    return tree.merge(jax.tree.map(move, old, total, rate), parameters)


def _take(train: ClientData, position: Array) -> Batch:
    """The examples at these positions of those of all clients, one after another."""
    offset = jnp.ravel(train.offset)
    ends = jnp.cumsum(jnp.ravel(train.size))
    existing = jnp.clip(position, 0, jnp.maximum(ends[-1] - 1, 0))
    client = jnp.searchsorted(ends, existing, side="right").clip(0, len(ends) - 1)
    index = offset[client] + existing - (ends - jnp.ravel(train.size))[client]
    everything = ClientData(train.examples, jnp.int32(0), ends[-1])
    return take_examples(everything, index, position < ends[-1])
