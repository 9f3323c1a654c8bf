"""Who takes part in a round, with which work, and on which device."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.training import budget
from pfljax.core.types import Array, ClientData, Cohort, Examples, Key, RunState
from pfljax.engine import mesh
from pfljax.engine.dealing import deal
from pfljax.engine.setting import Setting

FAR = np.iinfo(np.int32).max  # past the end: not written


class Turns(NamedTuple):
    """The cohort of a round in the order in which it trains; [M], or [slots]."""

    ids: Array  # i32, num_clients for an empty slot
    rows: Array  # i32, where `RunState.clients` keeps the client
    steps: Array  # i32
    size: Array  # i32
    weight: Array  # f32
    mask: Array  # f32
    draws: Array  # f32, 0 for a second place of the same client
    drawn: Array  # i32[M], ids in the order of the draw, whoever trains them


def round_key(key: Key, round_: Array) -> Key:
    """The key of a round, of the run's key."""
    return jax.random.fold_in(derive(key, "round"), round_)


def draw(
    setting: Setting,
    learned: Any,
    key: Key,
    round_: Array,
) -> Array:
    """Ids of the cohort of a round, i32[M].

    Args:
      setting: its selection.
      learned: the selection's state before this round.
      key: the run's key.
      round_: i32[], 0 for the first.
    """
    cohort_key = derive(round_key(key, round_), "cohort")
    return setting.selection.choose(learned, cohort_key)


def plan(
    setting: Setting,
    state: RunState,
    train: ClientData,
    resident: Array | None,
) -> Turns:
    """Who takes part in the coming round, with which work, dealt to the devices.

    `train` and `resident` are those of `pfljax.engine.one_round`.
    """
    selection = setting.selection
    num_clients = train.size.shape[0]
    ids = draw(setting, state.selection, state.key, state.round)
    size = tree.take(train.size, ids)
    work_key = derive(round_key(state.key, state.round), "work")
    steps, mask = selection.work(work_key, budget(setting.local, size))
    draws = (ids < num_clients).astype(jnp.float32)  # not of an empty place
    weight = size * draws
    if selection.replacement:
        draws = count_draws(ids)
        # Rows have made their clients likelier already: they do not weigh as well.
        weight = draws
        mask = mask * (draws > 0)
    rows = ids
    if resident is not None:
        rows = jnp.searchsorted(resident, ids)
    turns = Turns(
        ids=ids,
        rows=rows.astype(jnp.int32),
        steps=steps,
        size=size,
        weight=weight,
        mask=mask,
        draws=draws,
        drawn=ids,
    )
    return turns if setting.mesh is None else dealt(setting.mesh, turns, num_clients)


def dealt(
    grid: mesh.Grid,
    turns: Turns,
    num_clients: int,
) -> Turns:
    """The turns by device, [slots]; empty slots do nothing and weigh nothing."""
    slots = deal(grid, turns.ids, turns.steps, num_clients)
    zero = jnp.int32(0)
    empty = Turns(
        ids=jnp.int32(num_clients),
        rows=jnp.int32(FAR),
        steps=zero,
        size=zero,
        weight=zero,
        mask=zero,
        draws=zero,
        drawn=zero,
    )

    def of_field(members: Array, nobody: Array) -> Array:
        # An empty slot has the number M: one past the cohort stands nobody.
        return jnp.append(members, nobody.astype(members.dtype))[slots]

    by_slot = jax.tree.map(of_field, turns, empty)
    # Held whole by every device: else sums over it would be exchanged.
    return mesh.whole(grid, by_slot._replace(drawn=turns.drawn))


def count_draws(ids: Array) -> Array:
    """How often each client stands in the cohort, f32[M], in its first place; else 0.

    A client drawn twice takes part once, with twice the weight.
    """
    same = ids[:, None] == ids[None]
    first = jnp.argmax(same, axis=1) == jnp.arange(len(ids))
    return same.sum(1) * first.astype(jnp.float32)


def reporting_rows(turns: Turns) -> Array:
    """Where the new states of those who reported belong, i32[M]; FAR for others."""
    return jnp.where(turns.mask > 0, turns.rows, FAR)


def cohort_of(
    state: RunState,
    train: ClientData,
    turns: Turns,
    public: ClientData | None,
) -> Cohort:
    """What the server may know of this round."""
    return Cohort(
        ids=turns.ids,
        weight=turns.weight,
        mask=turns.mask,
        draws=turns.draws,
        num_clients=train.size.shape[0],
        round=state.round,
        key=derive(round_key(state.key, state.round), "server"),
        public=public_rows(train.examples, public),
    )


def public_rows(pool: Examples, public: ClientData | None) -> ClientData:
    """The rows of the server; none of `pool` where it has none."""
    if public is not None:
        return public
    return ClientData(pool, offset=jnp.int32(0), size=jnp.int32(0))
