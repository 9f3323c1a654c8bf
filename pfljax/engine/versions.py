"""Runs asynchronous rounds in one compiled program.

The events are known beforehand: `engine.asynchronous` computes them as a `Window`. A
round makes one or more versions of the server. For each version, the clients that read
the version before train first, and their results wait in slots until the version that
merges them. So no old server is kept, and the state of a client changes only when its
result is merged. A client has one slot at most; nothing reads its state in between.
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
from pfljax.engine.cohort_training import client_key, exchange
from pfljax.engine.modes import Mode, Pending
from pfljax.engine.plan import FAR, public_data, round_key
from pfljax.engine.rounds import receive
from pfljax.engine.setting import Setting


class Jobs(NamedTuple):
    """The turns of clients in the order of their versions, i32[J]."""

    client: Any
    row: Any  # of its state: its number, or its index among those on the device
    draw: Any  # the number of its cohort
    steps: Any
    slot: Any  # in which its result waits


class Window(NamedTuple):
    """The events of one call, with V versions that merge K uploads each."""

    jobs: Jobs
    first: Any  # i32[V + 1], the first job of each version
    slots: Any  # i32[V, K], of the uploads that a version merges
    clients: Any  # i32[V, K], of these uploads
    rows: Any  # i32[V, K], of the states of these clients
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

    def run_round(state: RunState, index: Array) -> tuple[RunState, Metrics]:
        return one_round(setting, state, train, window, index, public)

    def body(index: Array, carry: Any) -> Any:
        state, history = carry
        state, metrics = run_round(state, index)
        return state, tree.put(history, index, metrics)

    _, shapes = jax.eval_shape(run_round, state, jnp.int32(0))
    start = state, tree.stack_zeros(shapes, at_most)
    return jax.lax.fori_loop(0, count, body, start)


def one_round(
    setting: Setting,
    state: RunState,
    train: ClientData,
    window: Window,
    index: Array,
    public: ClientData | None,
) -> tuple[RunState, Metrics]:
    """The state after round `index` of the window, and the means of its metrics."""
    versions = _mode(setting).versions

    def run_version(state: RunState, index: Array) -> Any:
        return one_version(setting, state, train, window, index, public)

    first = index * versions
    state, (metrics, weight) = jax.lax.scan(
        run_version, state, first + jnp.arange(versions)
    )
    clients = jax.lax.dynamic_slice_in_dim(window.clients, first, versions)
    return _end_round(state, clients.ravel()), _means(metrics, weight)


def one_version(
    setting: Setting,
    state: RunState,
    train: ClientData,
    window: Window,
    index: Array,
    public: ClientData | None,
) -> tuple[RunState, tuple[Metrics, Array]]:
    """(the state with the next version, metrics and weights [K] of its uploads)."""
    mode = _mode(setting)
    pending = _start_clients(setting, state, train, window, index, public)
    clients = window.clients[index]
    tau = window.staleness[index]
    arrived = tree.take(pending, window.slots[index])
    cohort = _make_cohort(state, train, clients, mode, index, public)
    uploads = mode.move(state.server, arrived, tau)
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


def _start_clients(
    setting: Setting,
    state: RunState,
    train: ClientData,
    window: Window,
    index: Array,
    public: ClientData | None,
) -> Pending:
    """The slots after the training of the clients that read the server of `state`."""
    slots = jax.tree.leaves(state.pending)[0].shape[0]
    width = min(setting.width or _mode(setting).buffer, slots)
    first = window.first[index]
    end = window.first[index + 1]

    def train_chunk(number: Array, pending: Pending) -> Pending:
        which = first + number * width + jnp.arange(width)
        # The jobs after the last one are those of another version, or empty.
        exists = which < end
        jobs = tree.take(window.jobs, which)
        jobs = jobs._replace(steps=jnp.where(exists, jobs.steps, 0))
        trained = _train_clients(setting, state, train, jobs, public)
        return tree.put(pending, jnp.where(exists, jobs.slot, FAR), trained)

    chunks = -(-(end - first) // width)
    return jax.lax.fori_loop(0, chunks, train_chunk, state.pending)


def _train_clients(
    setting: Setting,
    state: RunState,
    train: ClientData,
    jobs: Jobs,
    public: ClientData | None,
) -> Pending:
    """The results of a chunk of clients on the current server, stacked."""

    def train_client(job: Jobs) -> Pending:
        return _train_client(setting, state, train, job, public)

    if jobs.client.shape[0] > 1:
        return jax.vmap(train_client)(jobs)
    # A vmap over one client would batch its products in vain.
    trained = train_client(tree.first(jobs))
    return jax.tree.map(lambda leaf: leaf[None], trained)


def _train_client(
    setting: Setting,
    state: RunState,
    train: ClientData,
    job: Jobs,
    public: ClientData | None,
) -> Pending:
    """The result of one client on the current server."""
    offset, size = tree.take((train.offset, train.size), job.client)
    client = tree.take(state.clients, job.row)
    turn = Turn(
        # By its cohort, since a client starts at most once in each.
        key=client_key(round_key(state.key, job.draw), job.client),
        round=state.round,
        steps=job.steps,
        id=job.client,
        num_clients=train.size.shape[0],
        public=public_data(train.examples, public),
    )
    data = ClientData(train.examples, offset, size)
    new_client, upload, metrics = exchange(
        setting, state.server, state.channel, turn, client, data
    )
    origin = ()
    if _mode(setting).keeps_origin:
        message = setting.algorithm.message(turn, state.server, client)
        origin = setting.algorithm.origin(message, client, upload)
    return Pending(new_client, upload, origin, metrics)


def _make_cohort(
    state: RunState,
    train: ClientData,
    clients: Array,
    mode: Mode,
    index: Array,
    public: ClientData | None,
) -> Cohort:
    """The clients whose uploads make a version, as the server knows them."""
    ones = jnp.ones(clients.shape, jnp.float32)
    # The first version of a round has the key of a synchronous round.
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
        public=public_data(train.examples, public),
    )


def _end_round(state: RunState, clients: Array) -> RunState:
    """The state after one more round, to which these clients reported."""
    num_clients = state.participations.shape[0]
    places = state.cohort.shape[0]
    # The shape stays the same: with a small buffer some places are empty.
    empty = jnp.full(places - clients.shape[0], num_clients, jnp.int32)
    cohort = jnp.concatenate([clients.astype(jnp.int32), empty])
    return state._replace(round=state.round + 1, cohort=cohort)


def _means(metrics: Metrics, weight: Array) -> Metrics:
    """Means over the examples of a round's uploads, [versions, K]."""
    flat = weight.ravel()
    return jax.tree.map(lambda leaf: aggregation.mean(leaf.ravel(), flat), metrics)


def _mode(setting: Setting) -> Mode:
    assert setting.mode is not None
    return setting.mode
