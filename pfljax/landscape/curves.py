"""Curves between two models, trained to a low loss, and the metrics along them.

A curve is given by points, parameters stacked [n, ...]: the ends and the bends between
them. Each of its models is a sum of the points by weights that add up to 1.
"""

import math
from functools import partial
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import requirements
from pfljax.core.keys import derive
from pfljax.core.training import budget, fit
from pfljax.core.types import Array, Batch, ClientData, Key, Local, Params, Task, Turn
from pfljax.evaluation.over_clients import GRID
from pfljax.landscape import lines, stacked

KINDS = ("bezier", "chain")


def curve_weights(kind: str, count: int, t: Any) -> Array:
    """Weights of `count` points at the positions `t` [...] of a curve, f32[..., count].

    "bezier": Bernstein polynomials of degree count - 1. "chain": straight pieces of the
    same length in t. Garipov et al., NeurIPS 2018, https://arxiv.org/abs/1802.10026
    (Section 3.2).
    """
    requirements.require_known("kind", kind, KINDS)
    t = jnp.asarray(t, jnp.float32)[..., None]
    k = np.arange(count)
    if kind == "chain":
        # A hat around each point, as wide as a piece of the chain.
        distance = jnp.abs(t * (count - 1) - k)
        return jnp.maximum(0, 1 - distance)
    degree = count - 1
    binomials = np.array([math.comb(degree, i) for i in k], np.float32)
    # k[::-1] is degree - k.
    return binomials * t**k * (1 - t) ** k[::-1]


def curve(
    task: Task,
    points: Params,
    data: ClientData,
    *,
    kind: str = "bezier",
    t: lines.Positions = GRID,
    **options: Unpack[lines.Options],
) -> lines.Line:
    """Metrics along the curve of these points, which `train_curve` returns.

    `data` and `train` are of one client; the other arguments are those of `line`.

    Raises:
      ValueError: as in `line`, or `t` leaves [0, 1], where the curve lies.
    """
    positions = lines.check_ascending(t)
    if positions[0] < 0 or positions[-1] > 1:
        raise ValueError(f"t is {t}; expected positions from 0 to 1, on the curve")
    count = len(jax.tree.leaves(points)[0])
    models = {
        f"point {i}": jax.tree.map(lambda leaf, i=i: leaf[i], points)
        for i in range(count)
    }
    weights = np.asarray(curve_weights(kind, count, positions))
    # A bend was trained as a part of the curve alone.
    keep = (positions == 0) | (positions == 1)
    metrics = lines.evaluate_mixtures(task, models, weights, data, keep=keep, **options)
    return lines.Line(t=positions, metrics=metrics)


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
      a, b: one model each.
      data: the examples of one client (offset and size i32[]).
      local: the minibatch steps.
      key: for the draws.
      kind: of the curve, see `curve_weights`.
      bends: number of points between a and b.

    Raises:
      ValueError: `kind` is unknown, `bends` is below 1, or a, b or data are of several
        clients.
    """
    stacked.check_whole("bends", bends, 1)
    if any(stacked.find_stacked(task, {"a": a, "b": b}, data)):
        raise ValueError("a, b or data are of many clients; give those of one")
    return _train_curve(task.loss, local, kind, bends, (a, b), data, key)


# Jitted once for all tasks: the loss and the settings are part of the cache key, so
# that a second training of one task traces nothing.
@partial(jax.jit, static_argnames=("loss", "local", "kind", "bends"))
def _train_curve(loss, local, kind, bends, ends, data, key):
    """The points of the curve."""

    def join(free: Params) -> Params:
        def join_leaf(a: Array, bends: Array, b: Array) -> Array:
            return jnp.concatenate([a[None], bends, b[None]])

        return jax.tree.map(join_leaf, ends[0], free, ends[1])

    def loss_of_draw(free: Params, batch: Batch, key: Key) -> Array:
        t = jax.random.uniform(derive(key, "place"))
        weights = curve_weights(kind, bends + 2, t)
        return loss(mix(join(free), weights), batch, key)

    # The bends start on the straight line.
    inner = curve_weights("chain", 2, np.linspace(0, 1, bends + 2)[1:-1])
    straight = mix(jax.tree.map(lambda *leaves: jnp.stack(leaves), *ends), inner)
    # One long round 0: a schedule by rounds stays at its first rate.
    turn = Turn(
        key=key,
        round=jnp.int32(0),
        steps=budget(local, data.size),
        id=jnp.int32(0),
        num_clients=1,
        public=data._replace(size=jnp.int32(0)),
    )
    trained, _ = fit(loss_of_draw, straight, data, turn, local, metrics=())
    return join(trained)


def mix(points: Params, weights: Array) -> Params:
    """The model of these weights f32[n] of the points."""
    return jax.tree.map(
        lambda leaf: jnp.tensordot(weights, leaf, 1, precision="highest"), points
    )
