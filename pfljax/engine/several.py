"""Rounds of several runs in one program, each run on a device of its own.

The clients of one run share the devices in each round, and wait for the slowest of
them; small cohorts leave devices idle. Runs do not wait for one another.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding

from pfljax.core.types import Array, ClientData, Metrics, RunState
from pfljax.engine import mesh
from pfljax.engine.rounds import rounds
from pfljax.engine.setting import Setting

Rows = tuple[ClientData, ClientData | None]  # of training, and the server's


def compile_several(
    setting: Setting, at_most: int, like: RunState, rows: Any, runs: int
) -> Any:
    """A compiled program (states, rows, counts) -> (states, metrics by run and round).

    Donates `states`. Several runs of one device are under one `vmap`.

    Args:
      setting: of each run; R is a multiple of its devices.
      at_most: rounds of one call.
      like: shapes, dtypes and shardings of a run's state; `states` are R of them.
      rows: those of all runs, as `place` gives them.
      runs: R; `counts` i32[R] are the rounds of each, 0 for a run that waits.
    """
    grid = setting.mesh
    num_clients = like.participations.shape[0]
    alone = setting._replace(mesh=None)

    def one(state: RunState, rows: Rows, count: Array) -> tuple[RunState, Metrics]:
        train, public = rows
        return rounds(alone, state, train, count, at_most, public=public)

    def run(states: Sequence[RunState], rows: Any, counts: Array) -> Any:
        whole = [_cut(state, num_clients) for state in states]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *whole)
        over = jax.shard_map(
            _over_runs(one, runs > _grid(setting).size),
            mesh=_grid(setting),
            in_specs=mesh.SPLIT,
            out_specs=mesh.SPLIT,
            check_vma=False,
        )
        trained, metrics = over(stacked, rows, counts)
        after = []
        for i in range(runs):
            state = jax.tree.map(lambda leaf, i=i: leaf[i], trained)
            clients = mesh.pad(grid, state.clients, num_clients)
            after.append(state._replace(clients=clients))
        return tuple(after), metrics

    where = mesh.shardings(grid, like)
    jitted = jax.jit(
        run,
        donate_argnums=0,
        out_shardings=((where,) * runs, None),
    )
    counts = jax.ShapeDtypeStruct((runs,), np.int32)
    return jitted.lower((like,) * runs, rows, counts).compile()


def _over_runs(one: Callable[..., Any], several: bool) -> Callable[..., Any]:
    """`one` run's rounds over the runs of a device, `several` or a single one."""
    if several:
        return jax.vmap(one)

    # A vmap over one would batch its products for nothing.
    def single(*split: Any) -> Any:
        results = one(*jax.tree.map(lambda leaf: leaf[0], split))
        return jax.tree.map(lambda leaf: leaf[None], results)

    return single


def place(setting: Setting, rows: Sequence[Rows]) -> Any:
    """The rows of the runs, each on the device that trains it."""

    def stacked(*leaves: Any) -> np.ndarray:
        return np.stack([np.asarray(leaf) for leaf in leaves])

    where = NamedSharding(_grid(setting), mesh.SPLIT)
    return jax.device_put(jax.tree.map(stacked, *rows), where)


def _cut(state: RunState, num_clients: int) -> RunState:
    """The state without the clients that fill the blocks of several devices."""
    clients = jax.tree.map(lambda leaf: leaf[:num_clients], state.clients)
    return state._replace(clients=clients)


def _grid(setting: Setting) -> Mesh:
    """The devices of a run, whose one axis is that of the runs here."""
    # The very mesh that the states lie on: JAX refuses callbacks beside another one.
    if setting.mesh is not None:
        return setting.mesh.mesh
    return jax.make_mesh(
        (1,), (mesh.AXIS,), (AxisType.Auto,), devices=jax.devices()[:1]
    )
