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

import chex
import jax
import jax.numpy as jnp

from pfljax.core import aggregation, tree
from pfljax.core.keys import derive
from pfljax.core.types import (
    Array,
    ClientData,
    Cohort,
    Key,
    Metrics,
    RunState,
    Turn,
)
from pfljax.engine import mesh, travel
from pfljax.engine.chunked_vmap import over_clients
from pfljax.engine.plan import (
    FAR,
    Turns,
    cohort_of,
    plan,
    public_rows,
    reporting_rows,
    round_key,
)
from pfljax.engine.setting import Setting


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

    Raises:
      ValueError: the method returns a state of another structure, shape or dtype.
    """
    turns = plan(setting, state, train, resident)
    clients, uploads, metrics = train_cohort(setting, state, train, turns, public)
    cohort = cohort_of(state, train, turns, public)
    uploads, channel_state = _receive(setting, state, uploads, cohort)
    server = setting.algorithm.aggregate(state.server, uploads, cohort)
    _assert_alike("aggregate", "server", state.server, server)
    # Weights of a round without reports sum to 0: what `aggregate` made of them goes.
    server = tree.where(_anybody(turns), server, state.server)
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
    return after, _means(turns, metrics)


def _receive(
    setting: Setting,
    state: RunState,
    uploads: Any,
    cohort: Cohort,
) -> tuple[Any, Any]:
    """The uploads as the server gets them, and what the channel remembers."""
    if setting.channel is None:
        return uploads, state.channel
    channel_key = derive(cohort.key, "channel")
    return setting.channel.receive(state.channel, channel_key, uploads, cohort)


def _anybody(turns: Turns) -> Array:
    """Whether anybody reported, bool[]."""
    return turns.mask.sum() > 0


def _means(turns: Turns, metrics: Metrics) -> Metrics:
    """Means over rows of those who reported, and how many were asked and reported."""
    weight = turns.weight * turns.mask
    means = jax.tree.map(lambda leaf: aggregation.mean(leaf, weight), metrics)
    reported = _anybody(turns)
    means = jax.tree.map(lambda mean: jnp.where(reported, mean, jnp.nan), means)
    means["asked"] = (turns.draws > 0).sum().astype(jnp.float32)
    means["reported"] = turns.mask.sum()
    return means


class Shared(NamedTuple):
    """What every device has whole in a round."""

    server: Any
    channel: Any  # the channel's state
    round: Array  # i32[]
    key: Key  # of this round
    turns: Turns  # of all devices
    public: ClientData | None


def train_cohort(
    setting: Setting,
    state: RunState,
    train: ClientData,
    turns: Turns,
    public: ClientData | None,
) -> tuple[Any, Any, Metrics]:
    """(states of all clients, uploads [M], metrics [M]) after the cohort's training."""
    grid = setting.mesh
    num_clients = train.size.shape[0]

    def locally(shared: Shared, data: Any, clients: Any, turns: Turns) -> Any:
        examples, offset = data
        client_states = travel.fetch(grid, clients, shared.turns.rows, turns.rows)
        # An empty slot takes some client's offset; it reads no row.
        offset = tree.take(offset, mesh.inside(grid, turns.ids, offset))
        offset = mesh.inside(grid, offset, examples.y)
        rows = ClientData(examples, offset, turns.size)
        new_states, uploads, metrics = _train_here(
            setting, shared, num_clients, turns, client_states, rows
        )
        everybodys_rows = reporting_rows(shared.turns)
        local_rows = reporting_rows(turns)
        clients = travel.store(grid, clients, everybodys_rows, local_rows, new_states)
        return clients, uploads, metrics

    # Turns go to every device, which owns states of others' turns, and in parts.
    specs = mesh.WHOLE, mesh.data(grid), mesh.SPLIT, mesh.SPLIT
    split_turns = turns._replace(drawn=turns.ids)  # of one length, to be split
    shared = Shared(
        server=state.server,
        channel=state.channel,
        round=state.round,
        key=round_key(state.key, state.round),
        turns=split_turns,
        public=public,
    )
    data = train.examples, train.offset
    run = mesh.over(grid, locally, *specs)
    return run(shared, data, state.clients, split_turns)


def _train_here(
    setting: Setting,
    shared: Shared,
    num_clients: int,
    turns: Turns,
    client_states: Any,
    rows: ClientData,
) -> tuple[Any, Any, Metrics]:
    """(new states, uploads, metrics) of this device's turns, chunk after chunk."""

    def take_turn(client_id, steps, offset, size, client):
        turn = Turn(
            key=client_key(shared.key, client_id),
            round=shared.round,
            steps=steps,
            id=client_id,
            num_clients=num_clients,
            public=public_rows(rows.examples, shared.public),
        )
        data = ClientData(rows.examples, offset, size)
        return _exchange(setting, shared, turn, client, data)

    width = setting.width
    used = None
    if setting.mesh is not None:  # a part of the cohort, and empty slots
        width = width or -(-setting.selection.cohort // setting.mesh.size)
        used = (turns.rows < FAR).sum()
    args = turns.ids, turns.steps, rows.offset, rows.size, client_states
    return over_clients(take_turn, args, turns.steps, width, used)


def _exchange(
    setting: Setting,
    shared: Shared,
    turn: Turn,
    client: Any,
    data: ClientData,
) -> tuple[Any, Any, Metrics]:
    """(new state, upload as it leaves the client, metrics) of one client's turn."""
    algorithm = setting.algorithm
    message = algorithm.message(turn, shared.server, client)
    new_client, upload, metrics = algorithm.train(turn, message, client, data)
    _assert_alike("train", "client", client, new_client)
    if "loss" not in metrics:
        raise ValueError(
            f"the method's `train` returned the metrics {sorted(metrics)}; give the "
            'data loss as "loss"'
        )
    if setting.channel is not None:
        channel_key = derive(turn.key, "channel")
        upload = setting.channel.send(shared.channel, channel_key, message, upload)
    return new_client, upload, metrics


def _assert_alike(
    function: str,
    role: str,
    before: Any,
    after: Any,
) -> None:
    """Refuses a new state that is not shaped as the old one, while it is traced.

    Later it would be an error of the loop over rounds, which names no method, or a
    dtype that the scatter casts in silence.
    """
    # Python numbers are states as well, and have no shape of their own.
    states = [jax.tree.map(jnp.asarray, state) for state in (before, after)]
    chex.assert_trees_all_equal_shapes_and_dtypes(
        *states,
        custom_message=(
            f"the method's `{function}` returned another {role} state (tree 1) than it "
            f"began with (tree 0); keep the structure, shapes and dtypes of `init`"
        ),
        exception_type=ValueError,
    )


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
        return state, tree.put(history, index, metrics)

    def of_rounds(metric: Any) -> Array:
        return jnp.zeros((at_most, *metric.shape), metric.dtype)

    _, shapes = jax.eval_shape(step, state, train, resident, public)
    history = jax.tree.map(of_rounds, shapes)
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
