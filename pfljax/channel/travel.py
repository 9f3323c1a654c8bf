"""An upload on its way: what leaves its client."""

from typing import Any

from pfljax.channel import origins
from pfljax.channel.base import Channel, Sender, as_received
from pfljax.channel.memory import Remembering
from pfljax.core.types import Algorithm, Client, Message, Upload


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
    """(what leaves the client, its new state); `client` is that before training.

    Beside the upload goes the channel's report, if it looks at uploads together.

    Raises:
      ValueError: the method's origin is not shaped as its upload, or the channel cannot
        do with it.
    """
    if algorithm.uploads_by_client and channel.one_for_all:
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
    if channel.memory is None:
        leaving = channel.send(state, sender, origin, upload, ())
        return _beside_report(channel, leaving), new_client
    if not isinstance(client, Remembering):
        raise ValueError(
            "error feedback needs a place in the clients' states, which this method "
            "has not; wrap it by `pfljax.channel.fit`, or set feedback=False"
        )
    memory = client.memory[channel.exchange]
    leaving = channel.send(state, sender, origin, upload, memory)
    memories = list(new_client.memory)
    memories[channel.exchange] = leaving.memory
    new_client = new_client._replace(memory=tuple(memories))
    return _beside_report(channel, leaving), new_client


def _beside_report(channel: Channel, leaving: Any) -> Any:
    if channel.receive is as_received:
        return leaving.upload
    return leaving.upload, leaving.report
