"""What happens in a round. The only code that knows the client axis and the round axis.

    ids, budgets = selection(key)
    chunks of `width` clients: vmap of message -> train
    aggregate the uploads; scatter the clients' new states in place

Keys derive from seed, round, client id and purpose, so results depend neither on
`width` nor on how the rounds are cut into calls.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import aggregation, tree
from pfljax.core.keys import derive
from pfljax.core.training import budget
from pfljax.core.types import (
    Algorithm,
    Array,
    ClientData,
    Cohort,
    Key,
    Local,
    Metrics,
    RunState,
    Turn,
)
from pfljax.engine import mesh
from pfljax.engine.chunked_vmap import over_clients
from pfljax.engine.mesh import Grid
from pfljax.selection import Selection

FAR = np.iinfo(np.int32).max  # past the end: not written


class Setting(NamedTuple):
    """What stays the same in a run, beside the data."""

    algorithm: Algorithm
    local: Local
    selection: Selection
    width: int | None = None  # clients under one vmap; 1 is a loop, None all
    mesh: Grid | None = None  # several devices (pfljax.engine.mesh); None for one


def draw(setting: Setting, key: Key, round_: Array) -> Array:
    """Ids of the cohort of a round, i32[M]; `key` is the run's."""
    return setting.selection.ids(derive(_round_key(key, round_), "cohort"))


def participations(
    setting: Setting, key: Key, round_: Array, num_clients: int
) -> Array:
    """How often each client was drawn in the first `round_` rounds, i32[C]."""

    def count(index: Array, total: Array) -> Array:
        return total.at[draw(setting, key, index)].add(1)

    return jax.lax.fori_loop(0, round_, count, jnp.zeros(num_clients, jnp.int32))


def one_round(
    setting: Setting, state: RunState, train: ClientData, resident: Array | None = None
) -> tuple[RunState, Metrics]:
    """The state after one more round, and the cohort's mean training metrics.

    `resident` i32[U], ascending, names the clients whose states `state.clients` holds;
    None for all.
    """
    turns = plan(setting, state, train, resident)
    clients, uploads, metrics = train_cohort(setting, state, train, turns)
    mask, weight = turns.mask, turns.weight
    num_clients = train.size.shape[0]
    cohort = Cohort(turns.ids, weight, mask, turns.draws, num_clients)
    server = setting.algorithm.aggregate(state.server, uploads, cohort)
    server = tree.where(mask.sum() > 0, server, state.server)
    server = mesh.whole(setting.mesh, server)
    metrics = jax.tree.map(lambda leaf: aggregation.mean(leaf, weight * mask), metrics)
    metrics = jax.tree.map(lambda m: jnp.where(mask.sum() > 0, m, jnp.nan), metrics)
    metrics["asked"] = (turns.draws > 0).sum().astype(jnp.float32)
    metrics["reported"] = mask.sum()
    return RunState(state.key, state.round + 1, server, clients), metrics


class Turns(NamedTuple):
    """The cohort of a round in the order in which it trains; [M], or [slots]."""

    ids: Array  # i32, num_clients for an empty slot
    rows: Array  # i32, where `RunState.clients` keeps the client
    steps: Array  # i32
    size: Array  # i32
    weight: Array  # f32
    mask: Array  # f32
    draws: Array  # f32, 0 for a second place of the same client


def plan(
    setting: Setting, state: RunState, train: ClientData, resident: Array | None
) -> Turns:
    """Who takes part in the coming round, with which work, dealt to the devices."""
    selection, key = setting.selection, _round_key(state.key, state.round)
    ids = draw(setting, state.key, state.round)
    size = tree.take(train.size, ids)
    steps, mask = selection.work(derive(key, "work"), budget(setting.local, size))
    draws = (ids < train.size.shape[0]).astype(jnp.float32)  # not of an empty place
    weight = size * draws
    if selection.replacement:
        weight = draws = count_draws(ids)
        mask = mask * (draws > 0)
    rows = ids if resident is None else jnp.searchsorted(resident, ids)
    turns = Turns(ids, rows.astype(jnp.int32), steps, size, weight, mask, draws)
    if setting.mesh is None:
        return turns
    count = train.size.shape[0]
    slots = mesh.deal(setting.mesh, ids, steps, count)
    empty: Any = (count, FAR, 0, 0, 0, 0, 0)
    dealt = jax.tree.map(
        lambda leaf, none: jnp.append(leaf, jnp.asarray(none, leaf.dtype))[slots],
        turns,
        Turns(*empty),
    )
    return mesh.whole(setting.mesh, dealt)  # else sums over it would be exchanged


def train_cohort(
    setting: Setting, state: RunState, train: ClientData, turns: Turns
) -> tuple[Any, Any, Metrics]:
    """(states of all clients, uploads [M], metrics [M]) after the cohort's training."""
    algorithm, grid = setting.algorithm, setting.mesh
    key = _round_key(state.key, state.round)

    def locally(same, data, clients, turns):
        server, key, round_, everybody = same
        examples, offset = data

        def take_turn(client_id, steps, span, client):
            turn = Turn(client_key(key, client_id), round_, steps)
            message = algorithm.message(server, client)
            return algorithm.train(turn, message, client, ClientData(examples, *span))

        own = mesh.fetch(grid, clients, everybody.rows, turns.rows)
        # An empty slot takes some client's offset; it reads no row.
        offset = tree.take(offset, mesh.inside(grid, turns.ids, offset))
        offset = mesh.inside(grid, offset, examples.y)
        args = turns.ids, turns.steps, (offset, turns.size), own
        at_once = setting.width, None
        if grid is not None:  # a part of the cohort, and empty slots
            share = -(-setting.selection.cohort // grid.size)
            at_once = setting.width or share, (turns.rows < FAR).sum()
        new, uploads, metrics = over_clients(take_turn, args, turns.steps, *at_once)
        clients = mesh.store(grid, clients, written(everybody), written(turns), new)
        return clients, uploads, metrics

    # Turns go to every device, which owns states of others' turns, and in parts.
    specs = mesh.WHOLE, mesh.data(grid), mesh.SPLIT, mesh.SPLIT
    same, data = (state.server, key, state.round, turns), (train.examples, train.offset)
    return mesh.over(grid, locally, *specs)(same, data, state.clients, turns)


def written(turns: Turns) -> Array:
    """Where the new states of those who reported belong, i32[M]; FAR for others."""
    return jnp.where(turns.mask > 0, turns.rows, FAR)


def count_draws(ids: Array) -> Array:
    """How often each client stands in the cohort, f32[M], in its first place; else 0.

    A client drawn twice takes part once, with twice the weight.
    """
    same = ids[:, None] == ids[None]
    first = jnp.argmax(same, axis=1) == jnp.arange(len(ids))
    return same.sum(1) * first.astype(jnp.float32)


def rounds(
    setting: Setting,
    state: RunState,
    train: ClientData,
    count: Array,
    at_most: int,
    resident: Array | None = None,
) -> tuple[RunState, Metrics]:
    """The state after `count` <= `at_most` rounds, and metrics f32[at_most] by round.

    `count` is traced: one program runs any number of rounds. `resident` is that of
    `one_round`, and must hold every client drawn in these rounds.
    """
    # Jitted, so that its two uses are traced once.
    step = jax.jit(lambda *given: one_round(setting, *given), inline=True)

    def body(index: Array, carry: Any) -> Any:
        state, history = carry
        state, metrics = step(state, train, resident)
        return state, jax.tree.map(lambda h, m: h.at[index].set(m), history, metrics)

    shapes = jax.eval_shape(step, state, train, resident)[1]
    history = jax.tree.map(lambda m: jnp.zeros((at_most, *m.shape), m.dtype), shapes)
    return jax.lax.fori_loop(0, count, body, (state, history))


def compile_rounds(setting: Setting, at_most: int) -> Callable[..., Any]:
    """`rounds` jitted as (state, train, count, resident); `state` is donated."""

    def run(
        state: RunState, train: ClientData, count: Array, resident: Array | None = None
    ) -> Any:
        return rounds(setting, state, train, count, at_most, resident)

    return jax.jit(run, donate_argnums=0)


def client_key(key: Key, client_id: Array) -> Key:
    """A client's key of this round."""
    return jax.random.fold_in(derive(key, "turn"), client_id)


def _round_key(key: Key, round_: Array) -> Key:
    return jax.random.fold_in(derive(key, "round"), round_)
