"""The local training of a cohort, on one device or several.

Every device runs `_train_here` on its own turns. It fetches the states of these clients
from the devices that own them, trains them chunk after chunk, and stores the new states
with their owners. On one device the same functions run, and nothing travels. With six
clients, 0 1 2 on device 0 and 3 4 5 on device 1, the cohort 1 5 2 3 may be dealt like
this:

    device 0   fetches 1, and 5 from device 1   trains 1 5   stores 5 on device 1
    device 1   fetches 3, and 2 from device 0   trains 2 3   stores 2 on device 0
"""

import functools
from typing import Any, NamedTuple

import jax

from pfljax import channel
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.types import (
    Array,
    ClientData,
    Examples,
    Key,
    Metrics,
    RunState,
    Turn,
)
from pfljax.engine import contract, mesh, transfer
from pfljax.engine.chunked_vmap import over_clients, sum_over_clients
from pfljax.engine.plan import FAR, Turns, public_data, round_key, rows_to_write
from pfljax.engine.setting import Setting
from pfljax.engine.summing import clients_at_once


class Shared(NamedTuple):
    """The values that every device has whole in a round."""

    server: Any
    channel: Any  # the channel's state
    round: Array  # i32[]
    key: Key  # of this round
    turns: Turns  # of all devices
    offset: Array  # i32[C], of the examples of each client
    public: ClientData | None


def train_cohort(
    setting: Setting,
    state: RunState,
    train: ClientData,
    turns: Turns,
    public: ClientData | None,
    weight: Array | None = None,
) -> tuple[Any, Any, Metrics]:
    """(states of all clients, uploads [M], metrics [M]) after the cohort's training.

    With a `weight` f32[M], uploads are summed by each device instead, [D, ...].
    """
    # A device needs its own turns, and those of all, since it owns states of clients
    # that others train. `drawn` may be shorter than the slots, and cannot be split.
    turns = turns._replace(drawn=turns.ids)
    shared = Shared(
        server=state.server,
        channel=state.channel,
        round=state.round,
        key=round_key(state.key, state.round),
        turns=turns,
        offset=train.offset,
        public=public,
    )
    grid = setting.mesh
    here = functools.partial(_train_here, setting, train.size.shape[0])
    run = mesh.over(grid, here, mesh.WHOLE, mesh.data(grid), mesh.SPLIT, mesh.SPLIT)
    return run(shared, train.examples, state.clients, (turns, weight))


def _train_here(
    setting: Setting,
    num_clients: int,
    shared: Shared,
    pool: Examples,
    clients: Any,
    turns_and_weight: tuple[Turns, Array | None],
) -> tuple[Any, Any, Metrics]:
    """(this device's block of states, uploads, metrics) after this device's turns."""
    turns, weight = turns_and_weight
    grid = setting.mesh
    states = transfer.fetch(grid, clients, shared.turns.rows, turns.rows)
    data = _training_data(grid, pool, shared.offset, turns)
    new_states, uploads, metrics = _take_turns(
        setting, num_clients, shared, turns, weight, states, data
    )
    all_rows = rows_to_write(shared.turns)
    own_rows = rows_to_write(turns)
    clients = transfer.store(grid, clients, all_rows, own_rows, new_states)
    return clients, uploads, metrics


def _training_data(
    grid: mesh.Grid | None, pool: Examples, offset: Array, turns: Turns
) -> ClientData:
    """The training examples of these turns, by offsets into this device's `pool`."""
    # An empty slot has some client's offset, but reads no example.
    offset = tree.take(offset, turns.ids)
    offset = mesh.inside(grid, offset, pool.y)
    return ClientData(pool, offset, turns.size)


def _take_turns(
    setting: Setting,
    num_clients: int,
    shared: Shared,
    turns: Turns,
    weight: Array | None,
    states: Any,
    data: ClientData,
) -> tuple[Any, Any, Metrics]:
    """(new states, uploads, metrics) of these turns, chunk after chunk."""

    def take_turn(client_id, steps, offset, size, client):
        turn = Turn(
            key=client_key(shared.key, client_id),
            round=shared.round,
            steps=steps,
            id=client_id,
            num_clients=num_clients,
            public=public_data(data.examples, shared.public),
        )
        client_data = ClientData(data.examples, offset, size)
        return exchange(
            setting, shared.server, shared.channel, turn, client, client_data
        )

    width = clients_at_once(setting, turns.ids.shape[0])
    used = None
    # The turns are a part of the cohort with empty slots behind, which are left out.
    if setting.mesh is not None or setting.groups is not None:
        used = (turns.rows < FAR).sum()
    args = turns.ids, turns.steps, data.offset, data.size, states
    if weight is None:
        return over_clients(take_turn, args, turns.steps, width, used)

    def upload_apart(*args: Any) -> Any:
        new_state, upload, metrics = take_turn(*args)
        return (new_state, metrics), upload

    (new_states, metrics), total = sum_over_clients(
        upload_apart, args, weight, turns.steps, width, used
    )
    # With an axis of devices, like that of clients of stacked uploads.
    return new_states, jax.tree.map(lambda leaf: leaf[None], total), metrics


def exchange(
    setting: Setting,
    server: Any,
    channel_state: Any,
    turn: Turn,
    client: Any,
    data: ClientData,
) -> tuple[Any, Any, Metrics]:
    """(new state, upload, metrics) of one client's turn.

    The upload is (upload, report) if the channel receives all of them together.
    """
    algorithm = setting.algorithm
    message = algorithm.message(turn, server, client)
    trained = algorithm.train(turn, message, client, data)
    new_client, upload, metrics = contract.check_training(algorithm, trained)
    contract.check_state(algorithm, "train", "client", client, new_client)
    if setting.channel is not None:
        sender = channel.Sender(
            key=derive(turn.key, "channel"),
            id=turn.id,
            asked=setting.selection.cohort,
        )
        upload, new_client = channel.send(
            setting.channel,
            algorithm,
            channel_state,
            sender,
            message,
            client,
            new_client,
            upload,
        )
    return new_client, upload, metrics


def client_key(key: Key, client_id: Array) -> Key:
    """A client's key for this round."""
    return jax.random.fold_in(derive(key, "turn"), client_id)
