"""Sends the upload of a client through a channel."""

from typing import Any

from pfljax.channel import origins
from pfljax.channel.base import Channel, Sender, Sent, as_received
from pfljax.channel.memory import ClientMemory
from pfljax.core.types import Algorithm, Client, Message, Origin, Upload


def send(
    channel: Channel,
    algorithm: Algorithm,
    state: Any,
    sender: Sender,
    message: Message,
    client: Client,
    new_client: Client,
    upload: Upload,
) -> tuple[Any, Client]:
    """Returns (the upload that leaves the client, the client's new state).

    The channel's report goes along if the channel looks at all uploads together.
    `client` is the state before training, `new_client` the one after it.

    Raises:
      ValueError: the method's origin has another shape than its upload, or the channel
        does not fit the method.
    """
    origin = algorithm.origin(message, client, upload)
    _check(channel, algorithm, origin, upload)
    if channel.memory is None:
        sent = channel.send(state, sender, origin, upload, ())
        return _with_report(channel, sent), new_client
    if not isinstance(client, ClientMemory):
        raise ValueError(
            "error feedback needs a memory in the clients' states, which this method "
            "does not have; wrap it by `pfljax.channel.fit`, or set feedback=False"
        )
    memory = client.memory[channel.exchange]
    sent = channel.send(state, sender, origin, upload, memory)
    memories = list(new_client.memory)
    memories[channel.exchange] = sent.memory
    new_client = new_client._replace(memory=tuple(memories))
    return _with_report(channel, sent), new_client


def _check(
    channel: Channel, algorithm: Algorithm, origin: Origin, upload: Upload
) -> None:
    if algorithm.uploads_by_client and channel.one_for_all:
        raise ValueError(
            "robust aggregation and noise at the server replace every upload by one "
            "value, but the server of this method needs each client's own upload; "
            "choose another channel, such as clip"
        )
    if not origins.fits(origin, upload):
        raise ValueError(
            "a channel acts on the change from an upload's origin, but the uploads of "
            "this method do not have the shapes of the message; define "
            "`Algorithm.origin`, with zeros where the upload is a difference and None "
            "at leaves that are no change"
        )


def _with_report(channel: Channel, sent: Sent) -> Any:
    if channel.receive is as_received:
        return sent.upload
    return sent.upload, sent.report
