"""How differently clients' models compute: their predictions, and their features.

As matrices [K, K] of all pairs, on the examples of both clients, like the barriers of
`pairs`. They are NaN where a model has diverged, or where there are no examples.
"""

import itertools
from collections.abc import Callable, Iterable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.minibatches import take_examples
from pfljax.core.types import Array, ClientData, Params, Task
from pfljax.landscape import stacked

EXAMPLES = 256  # at a time
MODELS = 32  # of a block; the outputs of two blocks lie in memory together


def disagreement(task: Task, models: Params, data: ClientData) -> np.ndarray:
    """The share of examples for which two models predict different classes, f64[K, K].

    Fort, Hu and Lakshminarayanan, 2019, https://arxiv.org/abs/1912.02757.

    Args:
      task: the model.
      models: parameters stacked over K clients.
      data: the examples of one client, or those of the K clients: then two models are
        compared on the examples of both.

    Raises:
      ValueError: the models are not K stacked ones of this task, or `data` is of
        another number of clients.
    """

    def differ(p: np.ndarray, q: np.ndarray) -> float:
        if not np.isfinite(p).all() or not np.isfinite(q).all():
            return np.nan
        return (p.argmax(1) != q.argmax(1)).mean()

    return _compare(task.logits, differ, task, models, data)


def linear_cka(
    task: Task, models: Params, data: ClientData, *, logits: bool = False
) -> np.ndarray:
    """The linear CKA of the inputs of the head, or of the logits, f64[K, K].

    |Y'X|^2 / (|X'X| |Y'Y|) of centred features X and Y [N, d], in Frobenius norms; 1 is
    equal up to a rotation and a scale. Kornblith et al., ICML 2019,
    https://arxiv.org/abs/1905.00414 (Section 3). The other
    arguments are those of `disagreement`.
    """

    outputs = task.logits if logits else task.features
    return _compare(outputs, _cka, task, models, data)


def _cka(x: np.ndarray, y: np.ndarray) -> float:
    """The linear CKA of features f[N, d] and f[N, e]; 0 if one is constant."""
    x, y = (np.asarray(z, np.float64) - z.mean(0, dtype=np.float64) for z in (x, y))
    # The Gram matrices of few examples are smaller than the covariances of features.
    if len(x) < x.shape[1]:
        x, y = (z @ z.T for z in (x, y))
        cross, of_x, of_y = ((p * q).sum() for p, q in ((x, y), (x, x), (y, y)))
    else:
        pairs = ((x, y), (x, x), (y, y))
        cross, of_x, of_y = (np.square(p.T @ q).sum() for p, q in pairs)
    return cross / max(np.sqrt(of_x * of_y), 1e-30)


def _compare(
    outputs: Callable[..., Array],
    measure: Callable[[np.ndarray, np.ndarray], float],
    task: Task,
    models: Params,
    data: ClientData,
) -> np.ndarray:
    """`measure` of the outputs [N, ...] of each two models on their examples."""
    models_stacked, by_client = stacked.find_stacked(task, {"models": models}, data)
    if not models_stacked:
        raise ValueError("models is one model, expected K stacked along a first axis")
    spans = [
        offset + np.arange(size)
        for offset, size in zip(np.ravel(data.offset), np.ravel(data.size), strict=True)
    ]

    def find_examples(clients: Iterable[int]) -> np.ndarray:
        return np.concatenate([spans[k] for k in (clients if by_client else [0])])

    count = len(jax.tree.leaves(models)[0])
    result = np.full((count, count), np.nan)
    blocks = np.array_split(np.arange(count), -(-count // MODELS))
    for first, second in itertools.combinations_with_replacement(blocks, 2):
        ids = np.union1d(first, second)
        used = np.unique(find_examples(ids))
        some = tree.take(models, jnp.asarray(ids))
        by_model = _compute_outputs(outputs, some, data, used)
        for i, j in itertools.product(second, first):
            examples = find_examples({i, j})
            if j <= i and len(examples):
                x, y = by_model[np.searchsorted(ids, [i, j])]
                place = np.searchsorted(used, examples)
                result[i, j] = result[j, i] = measure(x[place], y[place])
    return result


def _compute_outputs(
    outputs: Callable[..., Array], models: Params, data: ClientData, used: np.ndarray
) -> np.ndarray:
    """The outputs of all K models for the examples `used` of the pool, f32[K, N, d]."""
    pool = ClientData(data.examples, jnp.int32(0), jnp.int32(0))
    parts = []
    for start in range(0, len(used), EXAMPLES):
        # The last part is filled with the last example, for the same program.
        place = np.arange(start, start + EXAMPLES)
        index = used[np.minimum(place, len(used) - 1)]
        batch = take_examples(pool, jnp.asarray(index), jnp.asarray(place < len(used)))
        parts.append(np.asarray(_evaluate(outputs, models, batch)))
    return np.concatenate(parts, 1)[:, : len(used)]


@partial(jax.jit, static_argnums=0)
def _evaluate(outputs, models, batch):
    """The outputs of each model for a batch, f32[K, B, d]."""

    def evaluate(params):
        values = outputs(params, batch, None).astype(jnp.float32)
        return values.reshape(len(batch.mask), -1)

    return jax.lax.map(evaluate, models)
