"""What happens in a round. The only code that knows the client axis and the round axis.

    ids = selection.choose; budgets = selection.work
    chunks of `width` clients: vmap of message -> train -> channel.send
    channel.receive -> aggregate; scatter the clients' new states; selection.update

Keys derive from seed, round, client id and purpose, so results depend neither on
`width` nor on how the rounds are cut into calls.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core import aggregation, tree
from pfljax.core.channel import Channel
from pfljax.core.keys import derive
from pfljax.core.training import budget
from pfljax.core.types import (
    Algorithm,
    Array,
    ClientData,
    Cohort,
    Examples,
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
    channel: Channel | None = None  # what happens to uploads on their way


def draw(setting: Setting, learned: Any, key: Key, round_: Array) -> Array:
    """Ids of the cohort of a round, i32[M].

    Args:
      setting: its selection.
      learned: the selection's state before this round.
      key: the run's key.
      round_: i32[], 0 for the first.
    """
    cohort_key = derive(_round_key(key, round_), "cohort")
    return setting.selection.choose(learned, cohort_key)


def one_round(
    setting: Setting,
    state: RunState,
    train: ClientData,
    resident: Array | None = None,
    public: ClientData | None = None,
) -> tuple[RunState, Metrics]:
    """The state after one more round, and the cohort's mean training metrics.

    Args:
      setting: what stays the same.
      state: after the rounds before.
      train: the clients' training rows, offset and size i32[C].
      resident: i32[U], ascending, the clients whose states `state.clients` holds; None
        for all.
      public: the rows of the server; None for none.
    """
    turns = plan(setting, state, train, resident)
    clients, uploads, metrics = train_cohort(setting, state, train, turns, public)
    cohort = cohort_of(state, train, turns, public)
    channel_state = state.channel
    if setting.channel is not None:
        channel_key = derive(cohort.key, "channel")
        uploads, channel_state = setting.channel.receive(
            channel_state, channel_key, uploads, cohort
        )
    reported = turns.mask.sum() > 0
    server = setting.algorithm.aggregate(state.server, uploads, cohort)
    server = tree.where(reported, server, state.server)
    counted = (turns.draws * turns.mask).astype(jnp.int32)
    after = RunState(
        key=state.key,
        round=state.round + 1,
        server=mesh.whole(setting.mesh, server),
        clients=clients,
        # An empty slot has the id C, past the end: it is dropped.
        participations=state.participations.at[turns.ids].add(counted, mode="drop"),
        cohort=turns.drawn,
        selection=setting.selection.update(state.selection, cohort, metrics),
        channel=channel_state,
    )
    weight = turns.weight * turns.mask
    metrics = jax.tree.map(lambda leaf: aggregation.mean(leaf, weight), metrics)
    metrics = jax.tree.map(lambda mean: jnp.where(reported, mean, jnp.nan), metrics)
    metrics["asked"] = (turns.draws > 0).sum().astype(jnp.float32)
    metrics["reported"] = turns.mask.sum()
    return after, metrics


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


def plan(
    setting: Setting, state: RunState, train: ClientData, resident: Array | None
) -> Turns:
    """Who takes part in the coming round, with which work, dealt to the devices."""
    selection = setting.selection
    num_clients = train.size.shape[0]
    work_key = derive(_round_key(state.key, state.round), "work")
    ids = draw(setting, state.selection, state.key, state.round)
    size = tree.take(train.size, ids)
    steps, mask = selection.work(work_key, budget(setting.local, size))
    draws = (ids < num_clients).astype(jnp.float32)  # not of an empty place
    weight = size * draws
    if selection.replacement:
        weight = draws = count_draws(ids)
        mask = mask * (draws > 0)
    rows = ids if resident is None else jnp.searchsorted(resident, ids)
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
    if setting.mesh is None:
        return turns
    slots = mesh.deal(setting.mesh, ids, steps, num_clients)
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
    dealt = jax.tree.map(
        lambda leaf, none: jnp.append(leaf, none.astype(leaf.dtype))[slots],
        turns,
        empty,
    )
    # Held whole by every device: else sums over it would be exchanged.
    return mesh.whole(setting.mesh, dealt._replace(drawn=ids))


def cohort_of(
    state: RunState, train: ClientData, turns: Turns, public: ClientData | None
) -> Cohort:
    """What the server may know of this round."""
    return Cohort(
        ids=turns.ids,
        weight=turns.weight,
        mask=turns.mask,
        draws=turns.draws,
        num_clients=train.size.shape[0],
        round=state.round,
        key=derive(_round_key(state.key, state.round), "server"),
        public=public_rows(train.examples, public),
    )


def public_rows(pool: Examples, public: ClientData | None) -> ClientData:
    """The rows of the server; none of `pool` where it has none."""
    if public is not None:
        return public
    return ClientData(pool, offset=jnp.int32(0), size=jnp.int32(0))


def train_cohort(
    setting: Setting,
    state: RunState,
    train: ClientData,
    turns: Turns,
    public: ClientData | None,
) -> tuple[Any, Any, Metrics]:
    """(states of all clients, uploads [M], metrics [M]) after the cohort's training."""
    algorithm = setting.algorithm
    grid = setting.mesh
    round_key = _round_key(state.key, state.round)
    num_clients = train.size.shape[0]

    def locally(same, data, clients, turns):
        server, channel_state, round_, key, everybody, public = same
        examples, offset = data

        def take_turn(client_id, steps, span, client):
            turn = Turn(
                key=client_key(key, client_id),
                round=round_,
                steps=steps,
                id=client_id,
                num_clients=num_clients,
                public=public_rows(examples, public),
            )
            message = algorithm.message(turn, server, client)
            rows = ClientData(examples, *span)
            client, upload, metrics = algorithm.train(turn, message, client, rows)
            if setting.channel is not None:
                channel_key = derive(turn.key, "channel")
                upload = setting.channel.send(
                    channel_state, channel_key, message, upload
                )
            return client, upload, metrics

        client_states = mesh.fetch(grid, clients, everybody.rows, turns.rows)
        # An empty slot takes some client's offset; it reads no row.
        offset = tree.take(offset, mesh.inside(grid, turns.ids, offset))
        offset = mesh.inside(grid, offset, examples.y)
        args = turns.ids, turns.steps, (offset, turns.size), client_states
        width = setting.width
        used = None
        if grid is not None:  # a part of the cohort, and empty slots
            width = width or -(-setting.selection.cohort // grid.size)
            used = (turns.rows < FAR).sum()
        new, uploads, metrics = over_clients(take_turn, args, turns.steps, width, used)
        clients = mesh.store(grid, clients, written(everybody), written(turns), new)
        return clients, uploads, metrics

    # Turns go to every device, which owns states of others' turns, and in parts.
    specs = mesh.WHOLE, mesh.data(grid), mesh.SPLIT, mesh.SPLIT
    dealt = turns._replace(drawn=turns.ids)  # of one length, to be split
    same = state.server, state.channel, state.round, round_key, dealt, public
    data = train.examples, train.offset
    return mesh.over(grid, locally, *specs)(same, data, state.clients, dealt)


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
    public: ClientData | None = None,
) -> tuple[RunState, Metrics]:
    """The state after `count` <= `at_most` rounds, and metrics f32[at_most] by round.

    `count` is traced: one program runs any number of rounds. `resident` and `public`
    are those of `one_round`; `resident` must hold every client drawn in these rounds.
    """
    # Jitted, so that its two uses are traced once.
    step = jax.jit(functools.partial(one_round, setting), inline=True)

    def body(index: Array, carry: Any) -> Any:
        state, history = carry
        state, metrics = step(state, train, resident, public)
        return state, jax.tree.map(lambda h, m: h.at[index].set(m), history, metrics)

    shapes = jax.eval_shape(step, state, train, resident, public)[1]
    history = jax.tree.map(lambda m: jnp.zeros((at_most, *m.shape), m.dtype), shapes)
    return jax.lax.fori_loop(0, count, body, (state, history))


def compile_rounds(setting: Setting, at_most: int) -> Callable[..., Any]:
    """`rounds` jitted as (state, train, count, resident, public); donates `state`."""

    def run(
        state: RunState,
        train: ClientData,
        count: Array,
        resident: Array | None = None,
        public: ClientData | None = None,
    ) -> Any:
        return rounds(setting, state, train, count, at_most, resident, public)

    return jax.jit(run, donate_argnums=0)


def client_key(key: Key, client_id: Array) -> Key:
    """A client's key of this round."""
    return jax.random.fold_in(derive(key, "turn"), client_id)


def _round_key(key: Key, round_: Array) -> Key:
    return jax.random.fold_in(derive(key, "round"), round_)
