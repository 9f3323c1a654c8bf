"""A chain of channels, and a channel in the further exchanges of a round."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from pfljax.channel.base import STAGES, Channel, Sender, Sent, as_received
from pfljax.core.keys import derive
from pfljax.core.types import Array, Cohort, Key, Origin, Upload

Channels = Sequence[Channel]


def chain(channels: Channels) -> Channel:
    """Chains channels in the order of their stages; each has its own key and state.

    Channels of the same stage act in the order given. States, memories and reports are
    tuples in the order given.
    """
    compressors = [channel.bits for channel in channels if channel.bits is not None]
    loses = any(channel.arrives is not None for channel in channels)
    remembers = any(channel.memory is not None for channel in channels)
    # `as_received` tells the engine that no channel needs the uploads side by side.
    at_client_alone = all(channel.receive is as_received for channel in channels)
    return Channel(
        init=lambda start: tuple(channel.init(start) for channel in channels),
        send=_chain_send(channels),
        receive=as_received if at_client_alone else _chain_receive(channels),
        one_for_all=any(channel.one_for_all for channel in channels),
        memory=_chain_memory(channels) if remembers else None,
        bits=compressors[-1] if compressors else None,
        report_bits=sum(channel.report_bits for channel in channels),
        shaped=any(channel.shaped for channel in channels),
        arrives=_chain_arrives(channels) if loses else None,
        attackers=max((channel.attackers for channel in channels), default=0.0),
    )


def _order(channels: Channels) -> list[int]:
    """The indices of the channels, sorted by stage."""
    stages = [STAGES.index(channel.stage) for channel in channels]
    return sorted(range(len(channels)), key=stages.__getitem__)


def _chain_send(channels: Channels) -> Any:
    """A `send` that calls that of one channel after another."""

    def send(
        states: Any, sender: Sender, origin: Origin, upload: Upload, memories: Any
    ) -> Sent:
        new_memories = list(memories)
        reports: list[Any] = [()] * len(channels)
        for index in _order(channels):
            # By index, not by name, since a channel may occur twice.
            key = derive(sender.key, str(index))
            with_key = sender._replace(key=key)
            memory = memories[index] if memories else ()
            sent = channels[index].send(states[index], with_key, origin, upload, memory)
            upload = sent.upload
            reports[index] = sent.report
            if memories:
                new_memories[index] = sent.memory
        return Sent(upload, tuple(new_memories), tuple(reports))

    return send


def _chain_receive(channels: Channels) -> Any:
    """A `receive` that calls that of one channel after another."""

    def receive(
        states: Any, key: Key, uploads: Upload, reports: Any, cohort: Cohort
    ) -> tuple[Upload, Any]:
        new_states = list(states)
        for index in _order(channels):
            channel_key = derive(key, str(index))
            uploads, new_states[index] = channels[index].receive(
                states[index], channel_key, uploads, reports[index], cohort
            )
        return uploads, tuple(new_states)

    return receive


def _chain_memory(channels: Channels) -> Any:
    """A `memory` of all channels; it is () for a channel without memory."""

    def memory(origin: Origin, upload: Upload) -> Any:
        return tuple(
            channel.memory(origin, upload) if channel.memory else ()
            for channel in channels
        )

    return memory


def _chain_arrives(channels: Channels) -> Any:
    """An `arrives` of clients whose uploads none of the channels loses."""

    def arrives(key: Key, ids: Array) -> Array:
        arrived = jnp.ones(ids.shape, jnp.float32)
        for index, channel in enumerate(channels):
            if channel.arrives is not None:
                arrived *= channel.arrives(derive(key, str(index)), ids)
        return arrived

    return arrives


def in_next_exchange(channel: Channel) -> Channel:
    """The channel in the next exchange of a round: its noise differs, not its state.

    A client has a memory for each exchange, since their shapes differ.
    """

    def send(
        state: Any, sender: Sender, origin: Origin, upload: Upload, memory: Any
    ) -> Sent:
        other = sender._replace(key=derive(sender.key, "then"))
        return channel.send(state, other, origin, upload, memory)

    def receive(
        state: Any, key: Key, uploads: Upload, reports: Any, cohort: Cohort
    ) -> tuple[Upload, Any]:
        return channel.receive(state, derive(key, "then"), uploads, reports, cohort)

    return channel._replace(
        send=send,
        receive=as_received if channel.receive is as_received else receive,
        exchange=channel.exchange + 1,
    )
