"""The plan of a round: its clients, their work and their devices.

A cohort has M places; several devices have slots, often more than M. `Turns` has the
client and the work of each. No place or slot is ever left out, since shapes must stay
the same. An empty one, or the second place of a client, has a mask of 0, and its
results are discarded. For example, client 3 of five clients is drawn twice:

            one device   assigned to two devices
    ids     3 0 3        3 0 5 | 3 5 5           5, one past the last, is empty
    draws   2 1 0        2 1 0 | 0 0 0           3 counts twice, in its first place
    mask    1 1 0        1 1 0 | 0 0 0
    arrived 1 0 0        1 0 0 | 0 0 0           the upload of client 0 is lost
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
from pfljax.engine.setting import Setting, count_gradients

FAR = np.iinfo(np.int32).max  # past the end: not written


class Turns(NamedTuple):
    """The cohort of a round, with an entry for each place [M] or slot [slots]."""

    ids: Array  # i32, of the client; C if empty
    rows: Array  # i32, of its state in `RunState.clients`; FAR if empty
    steps: Array  # i32, local steps
    size: Array  # i32, training examples
    weight: Array  # f32, for means over examples
    mask: Array  # f32, 1 if the client reports
    arrived: Array  # f32, 1 if its uploads reach the server: its state is then kept
    draws: Array  # f32, times that the client was drawn; 0 in its second place
    position: Array  # i32, in the cohort; FAR if empty
    waited: Array  # f32, virtual seconds that the server waits; 0 without a clock
    drawn: Array  # i32[M], ids by place, in any layout


def round_key(key: Key, round_: Array) -> Key:
    """The key of a round, derived from the run's key."""
    return jax.random.fold_in(derive(key, "round"), round_)


def cohort_key(key: Key, round_: Array) -> Key:
    """The key for the cohort of a round."""
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
    num_clients = train.size.shape[0]
    ids = draw(setting, state.selection, state.key, state.round)
    key = round_key(state.key, state.round)
    if setting.clock is not None:
        ids = clock.available(setting.clock, key, ids)
    size = tree.take(train.size, ids)
    # An empty place has the id C.
    draws = (ids < num_clients).astype(jnp.float32)
    steps, mask, waited = _plan_work(setting, state, key, ids, size, draws)
    turns = Turns(
        ids=ids,
        rows=_find_rows(setting, ids, resident),
        steps=steps,
        size=size,
        weight=size * draws,
        mask=mask,
        arrived=mask,
        draws=draws,
        position=jnp.arange(len(ids), dtype=jnp.int32),
        waited=waited,
        drawn=ids,
    )
    if setting.selection.replacement:
        turns = count_once(turns)
    turns = turns._replace(arrived=_find_arrived(setting, key, turns))
    # Groups assign their members themselves (`engine.architectures`).
    if setting.mesh is None or setting.groups is not None:
        return turns
    return assign_devices(setting.mesh, turns, num_clients, num_clients)


def _plan_work(
    setting: Setting, state: RunState, key: Key, ids: Array, size: Array, draws: Array
) -> tuple[Array, Array, Array]:
    """(steps i32[M], mask f32[M], seconds that the server waits f32[M]) of clients."""
    selection = setting.selection
    full = budget(setting.local, size)
    steps, mask = selection.work(state.selection, derive(key, "work"), ids, full)
    # An empty place has no work, whatever `work` returns. Without empty places it stays
    # a constant that some client reports: otherwise the old server would be kept beside
    # the new one.
    if not selection.full or setting.clock is not None:
        steps = jnp.where(draws > 0, steps, 0)
        mask = mask * draws
    if setting.clock is None:
        return steps, mask, jnp.zeros(ids.shape, jnp.float32)
    is_first = tree.take(state.participations, ids) == 0
    work = count_gradients(setting, steps, size, is_first)
    mask, waited = clock.on_time(setting.clock, key, ids, work, mask)
    return steps, mask, waited


def _find_arrived(setting: Setting, key: Key, turns: Turns) -> Array:
    """The clients that report, without those whose uploads the channel loses, f32[M].

    `key` is that of the round.
    """
    channel = setting.channel
    if channel is None or channel.arrives is None:
        return turns.mask
    lost_key = derive(derive(key, "server"), "lost")
    return turns.mask * channel.arrives(lost_key, turns.ids)


def _find_rows(setting: Setting, ids: Array, resident: Any) -> Array:
    """The rows of these clients in their stacks of all, or `resident`, clients."""
    groups = setting.groups
    if resident is None:
        rows = ids if groups is None else groups.rows(ids)
        return rows.astype(jnp.int32)
    if groups is None:
        return jnp.searchsorted(resident, ids).astype(jnp.int32)
    # Each client is in one of them; its row in the others is not used.
    rows = [jnp.searchsorted(of_group, ids) for of_group in resident]
    return jnp.choose(groups.of(ids), rows, mode="clip").astype(jnp.int32)


def count_once(turns: Turns) -> Turns:
    """The turns, with a client that is drawn twice counted in its first place only."""
    # Empty places are not clients, however many there are.
    draws = count_draws(turns.ids) * (turns.draws > 0)
    return turns._replace(
        # Sizes have already made clients more likely, and are no weights as well.
        weight=draws,
        mask=turns.mask * (draws > 0),
        draws=draws,
    )


def count_draws(ids: Array) -> Array:
    """The number of draws of each client, f32[M], in its first place; 0 in others.

    A client that is drawn twice takes part once, with twice the weight.
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
    """The turns by device, [slots]; empty slots have no work and no weight.

    All are of a stack of `stacked` clients.
    """
    slots = assign(grid, turns.rows, turns.steps, turns.draws, stacked)

    def place_field(members: Array, none: Array) -> Array:
        # An empty slot has the number M, one past the cohort.
        return jnp.append(members, none.astype(members.dtype))[slots]

    by_slot = jax.tree.map(place_field, turns, empty_turn(num_clients))
    # Whole on every device, since otherwise sums over it would be exchanged.
    return mesh.whole(grid, by_slot._replace(drawn=turns.drawn))


def empty_turn(num_clients: int) -> Turns:
    """The turn of an empty slot."""
    zero = jnp.int32(0)
    return Turns(
        ids=jnp.int32(num_clients),
        rows=jnp.int32(FAR),
        steps=zero,
        size=zero,
        weight=zero,
        mask=zero,
        arrived=zero,
        draws=zero,
        position=jnp.int32(FAR),
        waited=zero,
        drawn=zero,
    )


def rows_to_write(turns: Turns) -> Array:
    """The rows of the new states that clients keep, i32[M]; FAR for others."""
    return jnp.where(turns.arrived > 0, turns.rows, FAR)


def make_cohort(
    state: RunState,
    train: ClientData,
    turns: Turns,
    public: ClientData | None,
) -> Cohort:
    """The cohort of this round, as the server may know it."""
    return Cohort(
        ids=turns.ids,
        weight=turns.weight,
        mask=turns.arrived,
        draws=turns.draws,
        num_clients=train.size.shape[0],
        round=state.round,
        key=derive(round_key(state.key, state.round), "server"),
        public=public_data(train.examples, public),
    )


def public_data(pool: Examples, public: ClientData | None) -> ClientData:
    """The examples of the server; if it has none, an empty part of `pool`."""
    if public is not None:
        return public
    return ClientData(pool, offset=jnp.int32(0), size=jnp.int32(0))
