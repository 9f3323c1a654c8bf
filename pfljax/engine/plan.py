"""Who takes part in a round, with which work, and on which device.

A cohort has M places; several devices have slots, often more than M. `Turns` says of
each who stands there and what they do. No place or slot is ever left out, for shapes
must stay: one that nobody fills, or a client for the second time, has a mask of 0, and
nothing that it makes is kept. Client 3, of 8 steps, drawn twice of five clients:

            one device   assigned to two devices why
    ids     3 0 3        3 0 5 | 3 5 5           5, one past the last, is nobody
    draws   2 1 0        2 1 0 | 0 0 0           3 counts twice, in its first place
    mask    1 1 0        1 1 0 | 0 0 0
    rows    3 0 3        3 0 - | 3 - -           - is FAR: not read, not written
    drawn   3 0 3        3 0 3                   as drawn, in any layout
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.training import budget
from pfljax.core.types import Array, ClientData, Cohort, Examples, Key, RunState
from pfljax.engine import clock, mesh
from pfljax.engine.assignment import assign
from pfljax.engine.setting import Setting

FAR = np.iinfo(np.int32).max  # past the end: not written


class Turns(NamedTuple):
    """The cohort of a round, an entry a turn: [M] by place, or [slots] by device."""

    ids: Array  # i32, who it is; C for nobody
    rows: Array  # i32, where `RunState.clients` has the client; FAR for nobody
    steps: Array  # i32, local steps to take
    size: Array  # i32, training rows
    weight: Array  # f32, for means by rows
    mask: Array  # f32, 1 for who reports
    draws: Array  # f32, how often the client was drawn; 0 in its second place
    place: Array  # i32, in the cohort; FAR for nobody
    waited: Array  # f32, virtual seconds that the server waits; 0 without a clock
    drawn: Array  # i32[M], ids by place, whoever trains them


def round_key(key: Key, round_: Array) -> Key:
    """The key of a round, of the run's key."""
    return jax.random.fold_in(derive(key, "round"), round_)


def cohort_key(key: Key, round_: Array) -> Key:
    """The key by which the cohort of a round is chosen."""
    return derive(round_key(key, round_), "cohort")


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
    return setting.selection.choose(learned, cohort_key(key, round_))


def plan(
    setting: Setting,
    state: RunState,
    train: ClientData,
    resident: Any,
) -> Turns:
    """The clients of the coming round, their work and their devices.

    `train` and `resident` are those of `pfljax.engine.one_round`.
    """
    selection = setting.selection
    num_clients = train.size.shape[0]
    ids = draw(setting, state.selection, state.key, state.round)
    key = round_key(state.key, state.round)
    if setting.clock is not None:
        ids = clock.available(setting.clock, key, ids)
    size = tree.take(train.size, ids)
    full = budget(setting.local, size)
    work_key = derive(key, "work")
    steps, mask = selection.work(state.selection, work_key, ids, full)
    # An empty place has the id C: nobody works there, whatever `work` says.
    draws = (ids < num_clients).astype(jnp.float32)
    # Where none is empty it stays a constant that somebody reports: else the server of
    # before would be kept beside the new one.
    if not selection.full or setting.clock is not None:
        steps = jnp.where(draws > 0, steps, 0)
        mask = mask * draws
    waited = jnp.zeros(ids.shape, jnp.float32)
    if setting.clock is not None:
        mask, waited = clock.on_time(setting.clock, key, ids, steps, mask)
    turns = Turns(
        ids=ids,
        rows=_find_rows(setting, ids, resident),
        steps=steps,
        size=size,
        weight=size * draws,
        mask=mask,
        draws=draws,
        place=jnp.arange(len(ids), dtype=jnp.int32),
        waited=waited,
        drawn=ids,
    )
    if selection.replacement:
        turns = count_once(turns)
    # Groups assign their members themselves (`engine.architectures`).
    if setting.mesh is None or setting.groups is not None:
        return turns
    return assign_devices(setting.mesh, turns, num_clients, num_clients)


def _find_rows(setting: Setting, ids: Array, resident: Any) -> Array:
    """The rows of these clients in their stacks, which have all, or `resident`."""
    groups = setting.groups
    if resident is None:
        rows = ids if groups is None else groups.rows(ids)
        return rows.astype(jnp.int32)
    if groups is None:
        return jnp.searchsorted(resident, ids).astype(jnp.int32)
    # Each client is in one of them: in others it has a row that nobody asks for.
    rows = [jnp.searchsorted(of_group, ids) for of_group in resident]
    return jnp.choose(groups.of(ids), rows, mode="clip").astype(jnp.int32)


def count_once(turns: Turns) -> Turns:
    """The turns, where a client drawn several times counts in its first place alone."""
    # Empty places are no client, however many there are.
    draws = count_draws(turns.ids) * (turns.draws > 0)
    return turns._replace(
        # Rows have made their clients likelier already: they do not weigh as well.
        weight=draws,
        mask=turns.mask * (draws > 0),
        draws=draws,
    )


def count_draws(ids: Array) -> Array:
    """How often each client stands in the cohort, f32[M], in its first place; else 0.

    A client drawn twice takes part once, with twice the weight.
    """
    same = ids[:, None] == ids[None]
    first = jnp.argmax(same, axis=1) == jnp.arange(len(ids))
    return same.sum(1) * first.astype(jnp.float32)


def assign_devices(
    grid: mesh.Grid,
    turns: Turns,
    num_clients: int,
    stacked: int,
) -> Turns:
    """The turns by device, [slots]; empty slots do nothing and weigh nothing.

    All are of a stack of `stacked` clients.
    """
    slots = assign(grid, turns.rows, turns.steps, turns.draws, stacked)

    def place_field(members: Array, none: Array) -> Array:
        # An empty slot has the number M: one past the cohort stands nobody.
        return jnp.append(members, none.astype(members.dtype))[slots]

    by_slot = jax.tree.map(place_field, turns, nobody(num_clients))
    # Held whole by every device: else sums over it would be exchanged.
    return mesh.whole(grid, by_slot._replace(drawn=turns.drawn))


def nobody(num_clients: int) -> Turns:
    """The turn of an empty slot."""
    zero = jnp.int32(0)
    return Turns(
        ids=jnp.int32(num_clients),
        rows=jnp.int32(FAR),
        steps=zero,
        size=zero,
        weight=zero,
        mask=zero,
        draws=zero,
        place=jnp.int32(FAR),
        waited=zero,
        drawn=zero,
    )


def rows_to_write(turns: Turns) -> Array:
    """Where the new states of those who reported belong, i32[M]; FAR for others."""
    return jnp.where(turns.mask > 0, turns.rows, FAR)


def make_cohort(
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
