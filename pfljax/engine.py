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

from pfljax import reduce, tree
from pfljax.local import budget, derive
from pfljax.selection import Selection
from pfljax.types import (
    Algorithm,
    Array,
    ClientData,
    Cohort,
    Examples,
    Key,
    Local,
    Metrics,
    RunState,
    Task,
    Turn,
)

INIT_BLOCK = 1024  # clients whose first states are made at once


class Setting(NamedTuple):
    """What stays the same in a run, beside the data."""

    algorithm: Algorithm
    local: Local
    selection: Selection
    width: int | None = (
        None  # clients under one vmap; 1 is a loop, None the whole cohort
    )


def init(algorithm: Algorithm, task: Task, num_clients: int, key: Key) -> RunState:
    """The state before the first round; leaves of `clients` have a leading axis C."""
    params = task.init(derive(key, "params"))
    server = algorithm.init(params, num_clients, derive(key, "server"))
    # One client at a time up to a block: random draws under vmap compile for seconds.
    clients = jax.lax.map(
        lambda k: init_client(algorithm, params, k, key),
        jnp.arange(num_clients),
        batch_size=INIT_BLOCK if num_clients > INIT_BLOCK else None,
    )
    return RunState(key, jnp.int32(0), server, clients)


def init_client(algorithm: Algorithm, params: Any, client_id: Array, key: Key) -> Any:
    """The state of a client that has never taken part; also for clients never seen."""
    client_key = jax.random.fold_in(derive(key, "clients"), client_id)
    return algorithm.init_client(params, client_id, client_key)


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
    setting: Setting, state: RunState, train: ClientData
) -> tuple[RunState, Metrics]:
    """The state after one more round, and the cohort's mean training metrics."""
    algorithm, local, selection, width = setting
    num_clients = train.size.shape[0]
    key = _round_key(state.key, state.round)
    ids = draw(setting, state.key, state.round)
    offset, size = tree.take((train.offset, train.size), ids)
    steps, mask = selection.work(derive(key, "work"), budget(local, size))

    def take_turn(client_id: Array, steps: Array, data: Any, client: Any) -> Any:
        turn = Turn(client_key(key, client_id), state.round, steps)
        message = algorithm.message(state.server, client)
        return algorithm.train(turn, message, client, ClientData(train.examples, *data))

    turns = (ids, steps, (offset, size), tree.take(state.clients, ids))
    clients, uploads, metrics = over_clients(take_turn, turns, steps, width)
    weight = size.astype(jnp.float32)
    if selection.replacement:
        weight, mask = merge_draws(ids, mask)
    cohort = Cohort(ids, weight, mask, num_clients)
    server = algorithm.aggregate(state.server, uploads, cohort)
    server = tree.where(mask.sum() > 0, server, state.server)
    kept = jnp.where(mask > 0, ids, num_clients)  # past the end: not written
    clients = tree.put(state.clients, kept, clients)
    metrics = jax.tree.map(lambda leaf: reduce.mean(leaf, weight * mask), metrics)
    metrics = jax.tree.map(lambda m: jnp.where(mask.sum() > 0, m, jnp.nan), metrics)
    metrics["reported"] = mask.sum()
    return RunState(state.key, state.round + 1, server, clients), metrics


def merge_draws(ids: Array, mask: Array) -> tuple[Array, Array]:
    """(weight, mask) [M] of a cohort drawn with replacement, all draws alike.

    A client takes part in its first place, with as much weight as it has places.
    """
    same = ids[:, None] == ids[None]
    first = jnp.argmax(same, axis=1) == jnp.arange(len(ids))
    return same.sum(1).astype(jnp.float32), mask * first


def rounds(
    setting: Setting, state: RunState, train: ClientData, count: Array, at_most: int
) -> tuple[RunState, Metrics]:
    """The state after `count` <= `at_most` rounds, and metrics f32[at_most] by round.

    `count` is traced: one program runs any number of rounds.
    """

    def body(index: Array, carry: Any) -> Any:
        state, history = carry
        state, metrics = one_round(setting, state, train)
        return state, jax.tree.map(lambda h, m: h.at[index].set(m), history, metrics)

    shapes = jax.eval_shape(lambda s: one_round(setting, s, train)[1], state)
    history = jax.tree.map(lambda m: jnp.zeros((at_most, *m.shape), m.dtype), shapes)
    return jax.lax.fori_loop(0, count, body, (state, history))


def compile_rounds(setting: Setting, at_most: int) -> Callable[..., Any]:
    """`rounds` jitted as (state, train, count); the state given is donated."""

    def run(state: RunState, train: ClientData, count: Array) -> Any:
        return rounds(setting, state, train, count, at_most)

    return jax.jit(run, donate_argnums=0)


def client_key(key: Key, client_id: Array) -> Key:
    """A client's key of this round."""
    return jax.random.fold_in(derive(key, "turn"), client_id)


def over_clients(
    f: Callable[..., Any], args: tuple, steps: Array, width: int | None
) -> Any:
    """`f` over the leading axis of `args`, `width` clients at a time; stacked results.

    Clients are sorted by `steps`, their work, so that a chunk's lanes finish together;
    the results come back in the order given.
    """
    count = steps.shape[0]
    if width is None or width >= count:
        return jax.vmap(f)(*args)
    order = jnp.argsort(-steps, stable=True)
    padded = jnp.concatenate([order, jnp.repeat(order[-1:], -count % width)])
    chunks = jax.tree.map(
        lambda leaf: leaf[padded].reshape(-1, *(width,) * (width > 1), *leaf.shape[1:]),
        args,
    )
    one_chunk = jax.vmap(f) if width > 1 else f
    stacked = jax.lax.map(lambda chunk: one_chunk(*chunk), chunks)
    back = jnp.argsort(order)
    return jax.tree.map(
        lambda leaf: leaf.reshape(-1, *leaf.shape[1 + (width > 1) :])[back], stacked
    )


class Traffic(NamedTuple):
    """Bytes of one client's exchange in one round."""

    down: int
    up: int


def shapes_of_client(input_shape: tuple[int, ...]) -> Any:
    """The data of a client with one row, as shapes, for `jax.eval_shape`."""
    shape: Any = jax.ShapeDtypeStruct
    pool = Examples(shape((1, *input_shape), jnp.float32), shape((1,), jnp.int32))
    return ClientData(pool, shape((), jnp.int32), shape((), jnp.int32))


def traffic(
    algorithm: Algorithm, task: Task, num_clients: int, input_shape: tuple[int, ...]
) -> Traffic:
    """Bytes of message and upload, from their shapes alone: nothing is run."""

    def exchange(key: Key, data: ClientData) -> tuple[Any, Any]:
        params = task.init(key)
        server = algorithm.init(params, num_clients, key)
        client = algorithm.init_client(params, jnp.int32(0), key)
        message = algorithm.message(server, client)
        turn = Turn(key, jnp.int32(0), jnp.int32(1))
        return message, algorithm.train(turn, message, client, data)[1]

    data = shapes_of_client(input_shape)
    message, upload = jax.eval_shape(exchange, jax.random.key(0), data)
    return Traffic(tree.nbytes(message), tree.nbytes(upload))


def _round_key(key: Key, round_: Array) -> Key:
    return jax.random.fold_in(derive(key, "round"), round_)
