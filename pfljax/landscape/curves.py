"""Curves between two models and simplexes of models, trained to have a low loss.

Both are given by points, parameters stacked [n, ...]; each of their models is a sum of
the points by weights that add up to 1.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.training import Loss, budget, fit
from pfljax.core.tree import square_cosine
from pfljax.core.types import Array, Batch, ClientData, Key, Local, Params, Task, Turn
from pfljax.engine import chunked_vmap
from pfljax.evaluation.metrics import GRID
from pfljax.landscape import stacked
from pfljax.landscape.lines import Line, Places, ascending, judge

KINDS = ("bezier", "chain")


def curve_weights(kind: str, count: int, t: Any) -> Array:
    """Weights of `count` points at the places `t` [...] of a curve, f32[..., count].

    "bezier": Bernstein polynomials of degree count - 1. "chain": straight pieces of one
    length in t. Garipov et al., NeurIPS 2018, https://arxiv.org/abs/1802.10026
    (Section 3.2).
    """
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; known: {', '.join(KINDS)}")
    t, k = jnp.asarray(t, jnp.float32)[..., None], np.arange(count)
    if kind == "chain":
        return jnp.maximum(0, 1 - jnp.abs(t * (count - 1) - k))
    ways = np.array([math.comb(count - 1, i) for i in k], np.float32)
    return ways * t**k * (1 - t) ** k[::-1]


def curve(
    task: Task,
    points: Params,
    data: ClientData,
    *,
    kind: str = "bezier",
    t: Places = GRID,
    batch_size: int = 10,
    chunk: int | None = None,
) -> Line:
    """Metrics along the curve of these points: a `Line` whose t is the curve's.

    Its `arc` is the length of the straight pieces between the places.

    Arguments are those of `line`; `points` are what `train_curve` returns.

    Raises:
      ValueError: as of `line`, or `t` leaves [0, 1], where the curve lies.
    """
    places = ascending(t)
    if places[0] < 0 or places[-1] > 1:
        raise ValueError(f"t is {t}, expected places from 0 to 1, where the curve lies")
    models = _separate(task, points)
    weights = np.asarray(curve_weights(kind, len(models), places))
    found = mixtures(task, points, weights, data, batch_size, chunk)
    return Line(places, found, _arc(task, models, weights))


def _arc(task: Task, points: list[Params], weights: np.ndarray) -> np.ndarray:
    """Lengths up to each of the models of weights [T, n], f64[T] or f64[C, T]."""
    clients = stacked.count(task, points[0], "points")
    gram: Any = 0.0  # of the points less the first, which keeps its digits
    for leaves in zip(*map(jax.tree.leaves, points), strict=True):
        rows = [np.asarray(own, np.float64).reshape(clients or 1, -1) for own in leaves]
        apart = np.stack([row - rows[0] for row in rows], 1)
        gram = gram + apart @ apart.swapaxes(1, 2)
    steps = np.diff(weights.astype(np.float64), axis=0)
    squares = np.einsum("ti,cij,tj->ct", steps, gram, steps)
    arc = np.insert(np.cumsum(np.sqrt(np.maximum(squares, 0)), 1), 0, 0, axis=1)
    return arc if clients else arc[0]


def mixtures(
    task: Task,
    points: Params,
    weights: Any,
    data: ClientData,
    batch_size: int = 10,
    chunk: int | None = None,
) -> dict[str, np.ndarray]:
    """Metrics of the models of weights [P, n] of n points, f32[P] or f32[C, P].

    `points` are stacked [n, ...], or [C, n, ...] for C clients.
    """
    models = enumerate(_separate(task, points))
    named = {f"point {i}": model for i, model in models}
    return judge(task, named, np.asarray(weights), data, batch_size, chunk)


def _separate(task: Task, points: Params) -> list[Params]:
    """The points one by one, each one model or stacked [C, ...]."""
    one = jax.tree.leaves(stacked.shapes(task))
    first = jax.tree.leaves(points)[0]
    axis = first.ndim - one[0].ndim - 1
    if axis not in (0, 1):
        raise ValueError(
            f"points have a leaf of shape {first.shape}, expected {one[0].shape} "
            "behind one axis of points, or behind two, of clients and points"
        )
    counts = {np.shape(leaf)[axis] for leaf in jax.tree.leaves(points)}
    if len(counts) > 1:
        raise ValueError(
            f"points have leaves of {', '.join(map(str, sorted(counts)))} points; "
            "expected as many at every leaf"
        )
    return [
        jax.tree.map(lambda leaf, i=i: leaf.take(i, axis), points)
        for i in range(first.shape[axis])
    ]


def mix(points: Params, weights: Array) -> Params:
    """The model of these weights f32[n] of the points."""
    return jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, 1), points)


def train_curve(
    task: Task,
    a: Params,
    b: Params,
    data: ClientData,
    local: Local,
    key: Key,
    *,
    kind: str = "bezier",
    bends: int = 1,
) -> Params:
    """The points a, bends ..., b of a curve of low mean loss, stacked [bends + 2, ...].

    The bends start on the straight line and take the minibatch steps of `local` on the
    loss at a place that each step draws uniformly from [0, 1]; a and b stay. Garipov et
    al., NeurIPS 2018, https://arxiv.org/abs/1802.10026 (Section 3.1, eq. 2).

    Args:
      a, b: one model each, or of all clients, stacked [C, ...], as `data` says.
      data: rows of one client (offset and size i32[]), or of C clients, each of which
        gets a curve of its own: [C, bends + 2, ...].

    Raises:
      ValueError: `kind` is unknown, `bends` is below 1, or shapes do not go together.
    """
    if bends < 1:
        raise ValueError(f"bends is {bends}; expected at least 1")
    if len(set(stacked.count_all(task, {"a": a, "b": b}, data))) > 1:
        raise ValueError(
            "of a, b and data some are of many clients and some of one; give all of C "
            "clients, or all of one (landscape.pooled makes one of many)"
        )
    curve_weights(kind, 2, 0.0)  # a wrong kind is told before anything is compiled
    ends = jax.tree.map(lambda x, y: jnp.stack([x, y], data.offset.ndim), a, b)
    program = _curve_trainer(task.loss, local, kind, bends)
    return stacked.call(program, (ends, data, key), None)


@lru_cache(maxsize=32)
def _curve_trainer(loss: Loss, local: Local, kind: str, bends: int) -> Any:
    """The program (ends [2, ...], data, key) -> points, for one client or for all."""
    inner = curve_weights("chain", 2, np.linspace(0, 1, bends + 2)[1:-1])

    def weigh(key: Key) -> Array:
        return curve_weights(kind, bends + 2, jax.random.uniform(key))

    def train(ends: Params, data: ClientData, key: Key) -> Params:
        def joined(free: Params) -> Params:
            return jax.tree.map(
                lambda e, f: jnp.concatenate([e[:1], f, e[1:]]), ends, free
            )

        free = jax.tree.map(lambda e: jnp.tensordot(inner, e, 1), ends)
        return joined(_fit(loss, free, joined, weigh, data, local, key))

    return _for_all(train)


def train_simplex(
    task: Task,
    points: Params,
    data: ClientData,
    local: Local,
    key: Key,
    *,
    beta: float = 1.0,
) -> Params:
    """Points of a simplex (a line if two) whose models all have a low loss.

    Each minibatch step of `local` draws a model uniformly from the simplex, and a pair
    of points, whose cos^2 counts `beta`. Wortsman et al., ICML 2021,
    https://arxiv.org/abs/2102.10472 (Section 3, Algorithm 1).

    Args:
      points: n >= 2 models to start from, stacked [n, ...], or [C, n, ...], as `data`
        says.
      data: rows of one client (offset and size i32[]), or of C clients.

    Raises:
      ValueError: there is one point, or shapes do not go together.
    """
    separate = _separate(task, points)
    count, own = len(separate), stacked.count(task, separate[0], "points")
    if own != (len(data.offset) if data.offset.ndim else None):
        raise ValueError(
            f"points are of {own or 'one'} and data of {data.offset.shape} clients; "
            "give both of C clients, or both of one"
        )
    if count < 2:
        raise ValueError("points is one model; expected at least two, stacked")

    program = _simplex_trainer(task.loss, local, count, beta)
    return stacked.call(program, (points, data, key), None)


@lru_cache(maxsize=32)
def _simplex_trainer(loss: Loss, local: Local, count: int, beta: float) -> Any:
    """The program (points [n, ...], data, key) -> points, for one client or for all."""

    def weigh(key: Key) -> Array:
        drawn = jax.random.exponential(key, (count,))
        return drawn / drawn.sum()

    def apart(points: Params, key: Key) -> Array:
        i, j = jax.random.choice(key, count, (2,), replace=False)
        return beta * square_cosine(tree.take(points, i), tree.take(points, j))

    def train(points: Params, data: ClientData, key: Key) -> Params:
        return _fit(loss, points, lambda own: own, weigh, data, local, key, apart)

    return _for_all(train)


def _fit(
    loss: Loss,
    free: Params,
    joined: Callable[[Params], Params],
    weigh: Callable[[Key], Array],
    data: ClientData,
    local: Local,
    key: Key,
    penalty: Callable[[Params, Key], Array] | None = None,
) -> Params:
    """`free` after the steps on the loss of a model of joined(free), drawn anew."""

    def drawn(free: Params, batch: Batch, key: Key) -> Array:
        points = joined(free)
        value = loss(mix(points, weigh(derive(key, "place"))), batch, key)
        return value + penalty(points, derive(key, "pair")) if penalty else value

    turn = Turn(key, jnp.int32(0), budget(local, data.size))
    return fit(drawn, free, data, turn, local)[0]


def _for_all(train: Callable[..., Params]) -> Callable[..., Params]:
    """`train` of one client, or of each of C in chunks; client k's key folds in k."""

    def run(points: Params, data: ClientData, key: Key, width: int) -> Params:
        if not data.offset.ndim:
            return train(points, data, key)

        def one(points: Params, offset: Array, size: Array, key: Key) -> Params:
            return train(points, ClientData(data.examples, offset, size), key)

        ids = jnp.arange(len(data.offset))
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, ids)
        given = points, data.offset, data.size, keys
        return chunked_vmap.over_clients(one, given, data.size, width)

    return jax.jit(run, static_argnums=3)
