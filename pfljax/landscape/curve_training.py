"""Trains curves between two models and simplexes of models to have a low loss.

Each step draws one model of the curve or simplex, and its gradient moves the points
that span it.
"""

from collections.abc import Callable
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
from pfljax.landscape import stacked
from pfljax.landscape.curves import curve_weights, mix, separate
from pfljax.runtime.programs import memoize


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
    loss at a position that each step draws uniformly from [0, 1]; a and b stay. Garipov
    et al., NeurIPS 2018, https://arxiv.org/abs/1802.10026 (Section 3.1, eq. 2).

    Args:
      task: the model.
      a, b: one model each, or of all clients, stacked [C, ...], as `data` says.
      data: rows of one client (offset and size i32[]), or of C clients, each of which
        gets a curve of its own: [C, bends + 2, ...].
      local: the minibatch steps.
      key: of the draws.
      kind: of the curve, see `curve_weights`.
      bends: number of points between a and b.

    Raises:
      ValueError: `kind` is unknown, `bends` is below 1, or shapes do not go together.
    """
    if bends < 1:
        raise ValueError(f"bends is {bends}; expected at least 1")
    is_stacked = stacked.find_stacked(task, {"a": a, "b": b}, data)
    if len(set(is_stacked)) > 1:
        raise ValueError(
            "of a, b and data some are of many clients and some of one; give all of C "
            "clients, or all of one (landscape.pooled makes one of many)"
        )
    # An unknown kind is refused before anything is compiled.
    curve_weights(kind, 2, 0.0)
    points_axis = data.offset.ndim
    ends = jax.tree.map(lambda x, y: jnp.stack([x, y], points_axis), a, b)
    program = _curve_trainer(task.loss, local, kind, bends)
    return stacked.call(program, (ends, data, key), None)


# Kept by loss and setting, so that a second training of one task traces nothing.
@memoize
def _curve_trainer(loss: Loss, local: Local, kind: str, bends: int) -> Any:
    """The program (ends [2, ...], data, key) -> points, for one client or for all."""
    t = np.linspace(0, 1, bends + 2)
    inner = curve_weights("chain", 2, t[1:-1])

    def draw_weights(key: Key) -> Array:
        return curve_weights(kind, bends + 2, jax.random.uniform(key))

    def train(ends: Params, data: ClientData, key: Key) -> Params:
        def make_points(free: Params) -> Params:
            return jax.tree.map(_between_ends, ends, free)

        # The bends start on the straight line.
        free = mix(ends, inner)
        trained = _fit(
            loss,
            free,
            make_points,
            draw_weights,
            data,
            local,
            key,
        )
        return make_points(trained)

    return _map_clients(train)


def _between_ends(ends: Array, bends: Array) -> Array:
    """The points of one parameter in the order of the curve."""
    return jnp.concatenate([ends[:1], bends, ends[1:]])


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
      task: the model.
      points: n >= 2 models to start from, stacked [n, ...], or [C, n, ...], as `data`
        says.
      data: rows of one client (offset and size i32[]), or of C clients.
      local: the minibatch steps.
      key: of the draws.
      beta: weight of the pull apart; 0 leaves the loss alone.

    Raises:
      ValueError: there is one point, or shapes do not go together.
    """
    models = separate(task, points)
    clients = stacked.num_clients(task, models[0], "points")
    data_clients = len(data.offset) if data.offset.ndim else None
    if clients != data_clients:
        raise ValueError(
            f"points are of {clients or 'one'} and data of {data.offset.shape} "
            "clients; give both of C clients, or both of one"
        )
    if len(models) < 2:
        raise ValueError("points is one model; expected at least two, stacked")
    program = _simplex_trainer(task.loss, local, len(models), beta)
    return stacked.call(program, (points, data, key), None)


@memoize
def _simplex_trainer(loss: Loss, local: Local, count: int, beta: float) -> Any:
    """The program (points [n, ...], data, key) -> points, for one client or for all."""

    def draw_weights(key: Key) -> Array:
        # Exponential draws over their sum are uniform on the simplex.
        draws = jax.random.exponential(key, (count,))
        return draws / draws.sum()

    def pull_apart(points: Params, key: Key) -> Array:
        i, j = jax.random.choice(key, count, (2,), replace=False)
        first = tree.take(points, i)
        second = tree.take(points, j)
        return beta * square_cosine(first, second)

    def train(points: Params, data: ClientData, key: Key) -> Params:
        return _fit(
            loss,
            points,
            lambda free: free,
            draw_weights,
            data,
            local,
            key,
            penalty=pull_apart,
        )

    return _map_clients(train)


def _fit(
    loss: Loss,
    free: Params,
    points_of: Callable[[Params], Params],
    draw_weights: Callable[[Key], Array],
    data: ClientData,
    local: Local,
    key: Key,
    penalty: Callable[[Params, Key], Array] | None = None,
) -> Params:
    """`free` after the steps on the loss of a model of points_of(free), drawn anew."""

    def loss_of_a_draw(free: Params, batch: Batch, key: Key) -> Array:
        points = points_of(free)
        weights = draw_weights(derive(key, "place"))
        value = loss(mix(points, weights), batch, key)
        if penalty is None:
            return value
        return value + penalty(points, derive(key, "pair"))

    # One long round 0: a schedule by rounds stays at its first rate.
    turn = Turn(
        key=key,
        round=jnp.int32(0),
        steps=budget(local, data.size),
        id=jnp.int32(0),
        num_clients=1,
        public=data._replace(size=jnp.int32(0)),
    )
    trained, _ = fit(loss_of_a_draw, free, data, turn, local, metrics=())
    return trained


def _map_clients(train: Callable[..., Params]) -> Callable[..., Params]:
    """`train` of one client, or of each of C in chunks; client k's key folds in k."""

    def train_all(
        points: Params,
        data: ClientData,
        key: Key,
        width: int,
    ) -> Params:
        if not data.offset.ndim:
            return train(points, data, key)

        def train_one(
            points: Params,
            offset: Array,
            size: Array,
            key: Key,
        ) -> Params:
            rows = ClientData(data.examples, offset, size)
            return train(points, rows, key)

        arguments = (
            points,
            data.offset,
            data.size,
            _client_keys(key, len(data.offset)),
        )
        return chunked_vmap.over_clients(train_one, arguments, data.size, width)

    return jax.jit(train_all, static_argnums=3)


def _client_keys(key: Key, count: int) -> Key:
    """A key for each client, [count]."""
    ids = jnp.arange(count)
    # By id, not by position in a chunk: the chunk changes no result.
    fold_in = jax.vmap(jax.random.fold_in, (None, 0))
    return fold_in(key, ids)
