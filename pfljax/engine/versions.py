"""Asynchronous rounds in one compiled program: version after version of the server.

What happens, and when, is known before (`engine.events`). A version is

    who reads the last version trains, chunks of `width` at once      -> slots
    who makes this one is taken from its slot, moved to the server of now if it is
    late, received, merged; its new client state is written

A client trains as it starts, on the server that it reads: so no old server is kept but
the origins of uploads in their slots. Its own state changes as its upload is taken. A
client is in one slot at most, so nobody reads its state in between.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import aggregation, tree
from pfljax.core.keys import derive
from pfljax.core.types import (
    Array,
    ClientData,
    Cohort,
    Metrics,
    RunState,
    Turn,
)
from pfljax.engine import contract
from pfljax.engine.cohort_training import Shared, client_key, exchange
from pfljax.engine.modes import Mode, Pending
from pfljax.engine.plan import FAR, public_rows, round_key
from pfljax.engine.rounds import receive
from pfljax.engine.setting import Setting


class Jobs(NamedTuple):
    """Turns in the order of their versions, i32[J]."""

    client: Any
    row: Any  # of its state: its number, or its place among those on the device
    draw: Any  # the cohort that they were drawn in
    steps: Any
    slot: Any


class Window(NamedTuple):
    """The events of one call: of V versions, each of K uploads."""

    jobs: Jobs
    first: Any  # i32[V + 1], where the jobs of each version begin
    slots: Any  # i32[V, K], of the uploads that make it
    clients: Any  # i32[V, K], whose they are
    rows: Any  # i32[V, K], of their states
    staleness: Any  # i32[V, K]


def rounds(
    setting: Setting,
    at_most: int,
    state: RunState,
    train: ClientData,
    window: Window,
    count: Array,
    public: ClientData | None = None,
) -> tuple[RunState, Metrics]:
    """The state after `count` <= `at_most` rounds, and metrics f32[at_most] by round.

    `window` has the versions of these rounds.
    """
    mode = _mode(setting)

    def one_round(state: RunState, first: Array) -> tuple[RunState, Metrics]:
        def version(state: RunState, index: Array) -> Any:
            return one_version(setting, state, train, window, index, public)

        versions = first + jnp.arange(mode.versions)
        state, (metrics, weight) = jax.lax.scan(version, state, versions)
        clients = jax.lax.dynamic_slice_in_dim(window.clients, first, mode.versions)
        return _count(state, clients.ravel()), _means(metrics, weight)

    def body(index: Array, carry: Any) -> Any:
        state, history = carry
        state, metrics = one_round(state, index * mode.versions)
        return state, tree.put(history, index, metrics)

    _, shapes = jax.eval_shape(one_round, state, jnp.int32(0))
    history = jax.tree.map(lambda _: jnp.zeros(at_most, jnp.float32), shapes)
    return jax.lax.fori_loop(0, count, body, (state, history))


def one_version(
    setting: Setting,
    state: RunState,
    train: ClientData,
    window: Window,
    index: Array,
    public: ClientData | None,
) -> tuple[RunState, tuple[Metrics, Array]]:
    """(the state with the next version, metrics and rows [K] of those who made it)."""
    mode = _mode(setting)
    pending = _start(setting, state, train, window, index, public)
    clients = window.clients[index]
    tau = window.staleness[index]
    arrived = tree.take(pending, window.slots[index])
    cohort = _cohort(state, train, clients, mode, index, public)
    uploads = mode.moved(state.server, arrived, tau)
    uploads, cohort, channel_state = receive(setting, state, uploads, cohort)
    server = mode.merge(setting.algorithm, state.server, uploads, cohort, tau)
    contract.check_state(setting.algorithm, "aggregate", "server", state.server, server)
    after = state._replace(
        server=server,
        clients=tree.put(state.clients, window.rows[index], arrived.client),
        participations=state.participations.at[clients].add(1),
        channel=channel_state,
        pending=pending,
    )
    return after, (arrived.metrics, cohort.weight)


def _start(
    setting: Setting,
    state: RunState,
    train: ClientData,
    window: Window,
    index: Array,
    public: ClientData | None,
) -> Pending:
    """The slots after the training of those who read the version of `state`."""
    mode = _mode(setting)
    slots = jax.tree.leaves(state.pending)[0].shape[0]
    width = min(setting.width or mode.buffer, slots)
    first = window.first[index]
    end = window.first[index + 1]

    def chunk(number: Array, pending: Pending) -> Pending:
        which = first + number * width + jnp.arange(width)
        # Behind the last stands somebody who trains in another version, or nobody.
        exists = which < end
        jobs = tree.take(window.jobs, which)
        jobs = jobs._replace(steps=jnp.where(exists, jobs.steps, 0))
        trained = _train(setting, state, train, jobs, public)
        return tree.put(pending, jnp.where(exists, jobs.slot, FAR), trained)

    chunks = -(-(end - first) // width)
    return jax.lax.fori_loop(0, chunks, chunk, state.pending)


def _train(
    setting: Setting,
    state: RunState,
    train: ClientData,
    jobs: Jobs,
    public: ClientData | None,
) -> Pending:
    """What a chunk of clients makes of the server as it is, stacked."""

    def one(job: Jobs, offset: Array, size: Array, client: Any) -> Pending:
        rows = ClientData(train.examples, offset, size)
        turn = Turn(
            # By the cohort that it was drawn in: a client starts once in each.
            key=client_key(round_key(state.key, job.draw), job.client),
            round=state.round,
            steps=job.steps,
            id=job.client,
            num_clients=train.size.shape[0],
            public=public_rows(train.examples, public),
        )
        return _make(setting, state, turn, client, rows)

    offset, size = tree.take((train.offset, train.size), jobs.client)
    clients = tree.take(state.clients, jobs.row)
    stacked = jobs, offset, size, clients
    # A vmap over one would batch its products for nothing.
    if jobs.client.shape[0] > 1:
        return jax.vmap(one)(*stacked)
    trained = one(*jax.tree.map(lambda leaf: leaf[0], stacked))
    return jax.tree.map(lambda leaf: leaf[None], trained)


def _make(
    setting: Setting, state: RunState, turn: Turn, client: Any, rows: ClientData
) -> Pending:
    """What one client makes of the server as it is."""
    algorithm = setting.algorithm
    shared = Shared(
        server=state.server,
        channel=state.channel,
        round=state.round,
        key=state.key,
        turns=(),  # type: ignore[arg-type] -- nothing travels
        offset=rows.offset,
        public=turn.public,
    )
    new_client, upload, metrics = exchange(setting, shared, turn, client, rows)
    origin = ()
    if _mode(setting).keeps_origin:
        message = algorithm.message(turn, state.server, client)
        origin = algorithm.origin(message, client, upload)
    return Pending(
        client=new_client,
        upload=upload,
        origin=origin,
        metrics=metrics,
    )


def _cohort(
    state: RunState,
    train: ClientData,
    clients: Array,
    mode: Mode,
    index: Array,
    public: ClientData | None,
) -> Cohort:
    """Whose uploads make a version, as the server knows them."""
    ones = jnp.ones(clients.shape, jnp.float32)
    # Versions of a round differ; the first has the key of a synchronous round.
    key = derive(round_key(state.key, state.round), "server")
    if mode.versions > 1:
        key = jax.random.fold_in(key, index % mode.versions)
    return Cohort(
        ids=clients,
        weight=tree.take(train.size, clients) * ones,
        mask=ones,
        draws=ones,
        num_clients=train.size.shape[0],
        round=state.round,
        key=key,
        public=public_rows(train.examples, public),
    )


def _count(state: RunState, clients: Array) -> RunState:
    """The state after one more round, to which these clients reported."""
    num_clients = state.participations.shape[0]
    places = state.cohort.shape[0]
    # Shapes stay: of a small buffer some places of the cohort are empty.
    nobody = jnp.full(places - clients.shape[0], num_clients, jnp.int32)
    cohort = jnp.concatenate([clients.astype(jnp.int32), nobody])
    return state._replace(round=state.round + 1, cohort=cohort)


def _means(metrics: Metrics, weight: Array) -> Metrics:
    """Means over the rows of a round's uploads, [versions, K]."""
    rows = weight.ravel()

    def mean_leaf(leaf: Array) -> Array:
        return aggregation.mean(leaf.reshape(rows.shape[0]), rows)

    return jax.tree.map(mean_leaf, metrics)


def _mode(setting: Setting) -> Mode:
    assert setting.mode is not None
    return setting.mode
