"""Trains curves between two models, and simplexes of models, to a low loss.

Each step draws one model of the curve or simplex, and its gradient moves the points
that span it.
"""

from collections.abc import Callable
from functools import partial

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
      a, b: one model each, or of all clients, stacked [C, ...], as `data` is.
      data: the examples of one client (offset and size i32[]), or of C clients, each of
        which gets its own curve: [C, bends + 2, ...].
      local: the minibatch steps.
      key: for the draws.
      kind: of the curve, see `curve_weights`.
      bends: number of points between a and b.

    Raises:
      ValueError: `kind` is unknown, `bends` is below 1, or the shapes do not agree.
    """
    if bends < 1:
        raise ValueError(f"bends is {bends}; expected at least 1")
    is_stacked = stacked.find_stacked(task, {"a": a, "b": b}, data)
    if len(set(is_stacked)) > 1:
        raise ValueError(
            "some of a, b and data are of many clients and some of one; give all of C "
            "clients, or all of one"
        )
    points_axis = data.offset.ndim
    ends = jax.tree.map(lambda x, y: jnp.stack([x, y], points_axis), a, b)
    arguments = (task.loss, local, kind, bends, ends, data, key)
    return stacked.call(_train_curves, arguments)


# Jitted once for all tasks: the loss and the settings are part of the cache key, so
# that a second training of one task traces nothing.
@partial(jax.jit, static_argnames=("loss", "local", "kind", "bends", "width"))
def _train_curves(loss, local, kind, bends, ends, data, key, width):
    """The points of the curve, of one client or of each."""
    t = np.linspace(0, 1, bends + 2)
    inner = curve_weights("chain", 2, t[1:-1])

    def draw_weights(key: Key) -> Array:
        return curve_weights(kind, bends + 2, jax.random.uniform(key))

    def train(ends: Params, data: ClientData, key: Key) -> Params:
        def make_points(free: Params) -> Params:
            return jax.tree.map(_join_points, ends, free)

        def loss_of_draw(free: Params, batch: Batch, key: Key) -> Array:
            weights = draw_weights(derive(key, "place"))
            return loss(mix(make_points(free), weights), batch, key)

        # The bends start on the straight line.
        trained = _fit(loss_of_draw, mix(ends, inner), data, local, key)
        return make_points(trained)

    return _train_clients(train, ends, data, key, width)


def _join_points(ends: Array, bends: Array) -> Array:
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
    """The points of a simplex, a line if they are two, whose models have a low loss.

    Each minibatch step of `local` draws a model uniformly from the simplex, and a pair
    of points whose squared cosine is added with the weight `beta`. Wortsman et al.,
    ICML 2021, https://arxiv.org/abs/2102.10472 (Section 3, Algorithm 1).

    Args:
      task: the model.
      points: n >= 2 models to start from, stacked [n, ...], or [C, n, ...], as `data`
        is.
      data: the examples of one client (offset and size i32[]), or of C clients.
      local: the minibatch steps.
      key: for the draws.
      beta: weight of the squared cosine, which keeps the points apart.

    Raises:
      ValueError: there is one point, or the shapes do not agree.
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
    arguments = (task.loss, local, len(models), beta, points, data, key)
    return stacked.call(_train_simplexes, arguments)


@partial(jax.jit, static_argnames=("loss", "local", "count", "beta", "width"))
def _train_simplexes(loss, local, count, beta, points, data, key, width):
    """The points of the simplex, of one client or of each."""

    def draw_weights(key: Key) -> Array:
        # Exponential draws over their sum are uniform on the simplex.
        draws = jax.random.exponential(key, (count,))
        return draws / draws.sum()

    def similarity(points: Params, key: Key) -> Array:
        i, j = jax.random.choice(key, count, (2,), replace=False)
        return square_cosine(tree.take(points, i), tree.take(points, j))

    def loss_of_draw(points: Params, batch: Batch, key: Key) -> Array:
        weights = draw_weights(derive(key, "place"))
        value = loss(mix(points, weights), batch, key)
        return value + beta * similarity(points, derive(key, "pair"))

    def train(points: Params, data: ClientData, key: Key) -> Params:
        return _fit(loss_of_draw, points, data, local, key)

    return _train_clients(train, points, data, key, width)


def _fit(loss: Loss, free: Params, data: ClientData, local: Local, key: Key) -> Params:
    """`free` after the minibatch steps of `local` on this loss."""
    # One long round 0: a schedule by rounds stays at its first rate.
    turn = Turn(
        key=key,
        round=jnp.int32(0),
        steps=budget(local, data.size),
        id=jnp.int32(0),
        num_clients=1,
        public=data._replace(size=jnp.int32(0)),
    )
    trained, _ = fit(loss, free, data, turn, local, metrics=())
    return trained


def _train_clients(
    train: Callable[..., Params],
    points: Params,
    data: ClientData,
    key: Key,
    width: int,
) -> Params:
    """`train` for one client, or for each of C with its number folded into the key."""
    if not data.offset.ndim:
        return train(points, data, key)

    def train_client(points: Params, offset: Array, size: Array, key: Key) -> Params:
        return train(points, ClientData(data.examples, offset, size), key)

    # By number, not by position in a chunk: the chunk changes no result.
    ids = jnp.arange(len(data.offset))
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, ids)
    arguments = (points, data.offset, data.size, keys)
    return chunked_vmap.over_clients(train_client, arguments, data.size, width)
