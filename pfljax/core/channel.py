"""What may happen to an upload between a client and `aggregate`.

    upload_k -> send (at the client: clipped, noised, ...) -> receive (at the server)

What a client changed is its upload without its origin (`Algorithm.origin`): the message
of most methods, zeros where the upload is a difference already. A leaf without an
origin, such as IFCA's choice of a cluster, is no change and passes as it is.

A robust reducer is a channel too: it puts the robust value in the place of every
upload, so that whatever mean the method takes is that value. Uploads that have leaves
without an origin would be mixed by it: with those methods it is refused. What clients
do to uploads comes before what the server does, whatever their order.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax import registry
from pfljax.core import aggregation, origins, tree
from pfljax.core.keys import derive
from pfljax.core.types import (
    Algorithm,
    Array,
    Client,
    Cohort,
    Key,
    Message,
    Origin,
    Upload,
)
from pfljax.registry import AtLeastOne, Choice, Count, NotNegative, Positive, checked


class Channel(NamedTuple):
    """How uploads travel; `state` is in `RunState.channel`."""

    init: Callable[[], Any]  # the state before the first round
    send: Callable[[Any, Key, Origin, Upload], Upload]  # of one client
    receive: Callable[[Any, Key, Upload, Cohort], tuple[Upload, Any]]  # stacked over M
    one_for_all: bool = False  # a value of all uploads takes the place of each


def nothing() -> Any:
    """The state of a channel that remembers nothing."""
    return ()


def as_sent(
    state: Any,
    key: Key,
    origin: Origin,
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


def sending(send: Callable[[Key, Origin, Upload], Upload]) -> Channel:
    """A channel that remembers nothing and changes each upload at its client."""

    def stateless(
        state: Any,
        key: Key,
        origin: Origin,
        upload: Upload,
    ) -> Upload:
        return send(key, origin, upload)

    return Channel(init=nothing, send=stateless, receive=as_received)


@checked
def clip(*, norm: Positive = 1.0) -> Channel:
    """Scales what a client changed to an L2 norm of at most `norm`, over all leaves.

    McMahan et al., ICLR 2018, https://arxiv.org/abs/1710.06963 (section 2, flat
    clipping). What changed is upload - origin. A large `norm` changes nothing, a small
    one sends the origin. Counts and flags are no coordinates: they pass.
    """

    def send(key: Key, origin: Origin, upload: Upload) -> Upload:
        start, values, others = origins.parts(origin, upload)
        change = tree.sub(values, start)
        length = jnp.sqrt(tree.square_norm(change))
        shrunk = tree.axpy(norm / jnp.maximum(length, norm), change, start)
        # Not above the norm: there the upload keeps its bits.
        clipped = tree.where(length > norm, shrunk, values)
        return tree.merge(clipped, others)

    return sending(send)


@checked
def gaussian(*, std: NotNegative = 0.01) -> Channel:
    """Adds noise N(0, std^2) to every element of a change; `std` = 0 adds none.

    With `clip` before it, the Gaussian mechanism at the client (local differential
    privacy): std = noise multiplier * norm.
    """

    def send(key: Key, origin: Origin, upload: Upload) -> Upload:
        leaves, structure = jax.tree.flatten(upload)
        if not leaves:  # no key can be split into none
            return upload
        keys = jax.random.split(key, len(leaves))
        leaf_keys = jax.tree.unflatten(structure, list(keys))

        def noisy(leaf: Array, start: Any, leaf_key: Key) -> Array:
            if not origins.is_change(leaf, start):
                return leaf
            noise = jax.random.normal(leaf_key, leaf.shape, leaf.dtype)
            return leaf + std * noise

        return jax.tree.map(noisy, upload, origin, leaf_keys)

    return sending(send)


def robust(name: str, reducer: aggregation.Reducer) -> Channel:
    """A channel that puts `reducer` of the cohort's uploads in the place of each.

    Its `send` raises a ValueError for uploads that have leaves without an origin.
    """

    def send(state: Any, key: Key, origin: Origin, upload: Upload) -> Upload:
        names = origins.absent(origin, upload)
        if names:
            raise ValueError(
                f"channel {name!r} puts one value in the place of every upload, but "
                f"uploads of this method differ by a part that is no change: "
                f"{', '.join(names)}; choose another channel, such as clip"
            )
        return upload

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

    return Channel(init=nothing, send=send, receive=receive, one_for_all=True)


def median() -> Channel:
    """The median of each coordinate, for each upload (Yin et al., ICML 2018)."""
    return robust("median", aggregation.median)


@checked
def trimmed_mean(*, trim: aggregation.Trimmed = 0.1) -> Channel:
    """The trimmed mean in the place of each upload (Yin et al., ICML 2018)."""
    return robust("trimmed_mean", aggregation.trimmed_mean(trim))


@checked
def krum(*, byzantine: Count = 1, chosen: AtLeastOne = 1) -> Channel:
    """The (multi-)Krum mean in the place of each (Blanchard et al., NeurIPS 2017).

    Of fewer reports than `chosen`, all; of byzantine + 2 or fewer, those asked first.
    """
    return robust("krum", aggregation.krum(byzantine, chosen))


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
        origin: Origin,
        upload: Upload,
    ) -> Upload:
        for index, channel in enumerate(channels):
            # By position, not by name: a channel may be there twice.
            channel_key = derive(key, str(index))
            upload = channel.send(states[index], channel_key, origin, upload)
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

    # Told by name: the engine need not keep uploads that no channel looks at together.
    at_client_alone = all(channel.receive is as_received for channel in channels)
    return Channel(
        init=init,
        send=send,
        receive=as_received if at_client_alone else receive,
        one_for_all=any(channel.one_for_all for channel in channels),
    )


def again(channel: Channel) -> Channel:
    """The channel in a further exchange of a round: other noise, the same state."""

    def send(state: Any, key: Key, origin: Origin, upload: Upload) -> Upload:
        return channel.send(state, derive(key, "then"), origin, upload)

    def receive(
        state: Any, key: Key, uploads: Upload, cohort: Cohort
    ) -> tuple[Upload, Any]:
        return channel.receive(state, derive(key, "then"), uploads, cohort)

    if channel.receive is as_received:
        return channel._replace(send=send)
    return channel._replace(send=send, receive=receive)


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


def sent(
    channel: Channel,
    algorithm: Algorithm,
    state: Any,
    key: Key,
    message: Message,
    client: Client,
    upload: Upload,
) -> Upload:
    """The upload as it leaves its client; `client` is the state before training.

    Raises:
      ValueError: the method's origin is not shaped as its upload, or the channel cannot
        do with it.
    """
    if algorithm.told_apart and channel.one_for_all:
        raise ValueError(
            "a robust value takes the place of every upload, but this method's server "
            "tells its clients' uploads apart; choose other channels, such as clip"
        )
    origin = algorithm.origin(message, client, upload)
    if not origins.fits(origin, upload):
        raise ValueError(
            "a channel acts on what a client changed, but this method's uploads are "
            "shaped otherwise than their origin, which is the message unless "
            "`Algorithm.origin` says otherwise; give it, with zeros where the upload "
            "is a difference and None at leaves that are no change"
        )
    return channel.send(state, key, origin, upload)
