"""What may happen to an upload between a client and `aggregate`.

    upload_k -> send (at the client: clipped, noised, ...) -> receive (at the server)

A channel works with every method that averages what it is sent. A robust reducer is a
channel too: it puts the robust value in the place of every upload, so that whatever
mean the method takes is that value. (IFCA's clusters would be mixed by it.) What
clients do to uploads comes before what the server does, whatever their order.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax import registry
from pfljax.core import aggregation, tree
from pfljax.core.keys import derive
from pfljax.core.types import Array, Cohort, Key, Message, Upload
from pfljax.registry import Choice


class Channel(NamedTuple):
    """How uploads travel; `state` is in `RunState.channel`."""

    init: Callable[[], Any]  # the state before the first round
    send: Callable[[Any, Key, Message, Upload], Upload]  # of one client
    receive: Callable[[Any, Key, Upload, Cohort], tuple[Upload, Any]]  # stacked over M


def nothing() -> Any:
    """The state of a channel that remembers nothing."""
    return ()


def as_sent(
    state: Any,
    key: Key,
    message: Message,
    upload: Upload,
) -> Upload:
    """The upload, untouched."""
    return upload


def as_received(
    state: Any,
    key: Key,
    uploads: Upload,
    cohort: Cohort,
) -> tuple[Upload, Any]:
    """The uploads, untouched, and the state as it was."""
    return uploads, state


def sending(send: Callable[[Key, Message, Upload], Upload]) -> Channel:
    """A channel that remembers nothing and changes each upload at its client."""

    def stateless(
        state: Any,
        key: Key,
        message: Message,
        upload: Upload,
    ) -> Upload:
        return send(key, message, upload)

    return Channel(init=nothing, send=stateless, receive=as_received)


def clip(*, norm: float = 1.0) -> Channel:
    """Scales what a client changed to an L2 norm of at most `norm`, over all leaves.

    McMahan et al., ICLR 2018, https://arxiv.org/abs/1710.06963 (section 2, flat
    clipping). What changed is upload - message where both have one structure, as in
    methods that send parameters back, else the upload itself, as in SCAFFOLD. A large
    `norm` changes nothing.
    """
    registry.require("norm", norm, norm > 0, "a number > 0")

    def send(
        key: Key,
        message: Message,
        upload: Upload,
    ) -> Upload:
        start = origin(message, upload)
        change = tree.sub(upload, start)
        length = jnp.sqrt(tree.square_norm(change))
        # Not above: there the upload keeps its bits.
        shrunk = tree.axpy(norm / jnp.maximum(length, norm), change, start)
        return tree.where(length > norm, shrunk, upload)

    return sending(send)


def gaussian(*, std: float = 0.01) -> Channel:
    """Adds noise N(0, std^2) to every element of an upload; `std` = 0 adds none.

    With `clip` before it, the Gaussian mechanism at the client (local differential
    privacy): std = noise multiplier * norm.
    """
    registry.require("std", std, std >= 0, "a number >= 0")

    def send(
        key: Key,
        message: Message,
        upload: Upload,
    ) -> Upload:
        leaves, structure = jax.tree.flatten(upload)
        if not leaves:  # no key can be split into none
            return upload
        keys = jax.random.split(key, len(leaves))
        noisy = []
        for leaf, leaf_key in zip(leaves, keys, strict=True):
            # Counts and labels are no coordinates.
            if jnp.issubdtype(leaf.dtype, jnp.floating):
                noise = jax.random.normal(leaf_key, leaf.shape, leaf.dtype)
                leaf = leaf + std * noise
            noisy.append(leaf)
        return jax.tree.unflatten(structure, noisy)

    return sending(send)


def robust(reducer: aggregation.Reducer) -> Channel:
    """A channel that puts `reducer` of the cohort's uploads in the place of each."""

    def receive(
        state: Any,
        key: Key,
        uploads: Upload,
        cohort: Cohort,
    ) -> tuple[Upload, Any]:
        # Not by rows: they are a claim of the client, which may be an attacker.
        value = reducer(uploads, aggregation.reported(cohort))

        def repeated(leaf: Array, upload: Array) -> Array:
            leaf = leaf.astype(upload.dtype)
            return jnp.broadcast_to(leaf, upload.shape)

        return jax.tree.map(repeated, value, uploads), state

    return Channel(init=nothing, send=as_sent, receive=receive)


def median() -> Channel:
    """The median of each coordinate, for each upload (Yin et al., ICML 2018)."""
    return robust(aggregation.median)


def trimmed_mean(*, trim: float = 0.1) -> Channel:
    """The trimmed mean in the place of each upload (Yin et al., ICML 2018)."""
    return robust(aggregation.trimmed_mean(trim))


def krum(*, byzantine: int = 1, chosen: int = 1) -> Channel:
    """The (multi-)Krum mean in the place of each (Blanchard et al., NeurIPS 2017).

    Of fewer reports than `chosen`, all; of byzantine + 2 or fewer, those asked first.
    """
    registry.require("byzantine", byzantine, byzantine >= 0, "at least 0")
    registry.require("chosen", chosen, chosen >= 1, "at least 1")
    return robust(aggregation.krum(byzantine, chosen))


CHANNELS: dict[str, Callable[..., Channel]] = {
    "clip": clip,
    "gaussian": gaussian,
    "median": median,
    "trimmed_mean": trimmed_mean,
    "krum": krum,
}


def chain(channels: Sequence[Channel]) -> Channel:
    """The channels one after another, each with a key and a state of its own."""

    def init() -> Any:
        return tuple(channel.init() for channel in channels)

    def send(
        states: Any,
        key: Key,
        message: Message,
        upload: Upload,
    ) -> Upload:
        for index, channel in enumerate(channels):
            # By position, not by name: a channel may be there twice.
            channel_key = derive(key, str(index))
            upload = channel.send(states[index], channel_key, message, upload)
        return upload

    def receive(
        states: Any,
        key: Key,
        uploads: Upload,
        cohort: Cohort,
    ) -> tuple[Upload, Any]:
        new_states = []
        for index, channel in enumerate(channels):
            channel_key = derive(key, str(index))
            state = states[index]
            uploads, state = channel.receive(state, channel_key, uploads, cohort)
            new_states.append(state)
        return uploads, tuple(new_states)

    return Channel(init=init, send=send, receive=receive)


def make(choices: Sequence[Choice]) -> Channel | None:
    """The channel of names such as "clip:norm=1.0", in that order; None for no name.

    Raises:
      ValueError: a name or an option is unknown, or out of its range.
    """
    channels = []
    for choice in choices:
        factory = registry.find("channel", CHANNELS, choice.name)
        registry.check("channel", choice, factory)
        channels.append(factory(**choice.kwargs))
    return chain(channels) if channels else None


def origin(message: Message, upload: Upload) -> Upload:
    """What an upload is a change of: the message if it is shaped alike, else zero."""
    if jax.tree.structure(message) != jax.tree.structure(upload):
        return tree.zeros(upload)
    sent_shapes = jax.tree.map(jnp.shape, message)
    upload_shapes = jax.tree.map(jnp.shape, upload)
    return message if sent_shapes == upload_shapes else tree.zeros(upload)
