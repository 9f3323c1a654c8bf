"""The record of a channel, and functions that several channels share."""

from collections.abc import Callable
from typing import Any, NamedTuple

from pfljax.channel import origins
from pfljax.core import tree
from pfljax.core.types import Array, Cohort, Key, Origin, Upload

# Channels act in this order, whatever the order in which a user names them.
STAGES = ("attack", "clip", "compress", "lose", "reduce")


class Start(NamedTuple):
    """The inputs from which the state of a channel is made."""

    key: Key  # of the run
    num_clients: int
    # Shapes of a client's first exchange in a round; None without `fit`.
    origin: Origin = None
    upload: Upload = None


class Sender(NamedTuple):
    """The client that sends."""

    key: Key  # of its turn, for the channel alone
    id: Array  # i32[]
    asked: int  # M, the size of the cohort


class Sent(NamedTuple):
    """The upload that leaves a client, and the memory that it keeps."""

    upload: Upload
    memory: Any = ()  # of the client, for its next upload
    report: Any = ()  # for `receive`


class Channel(NamedTuple):
    """How uploads travel; `state` is in `RunState.channel`."""

    init: Callable[[Start], Any]  # the state before the first round
    # (state, sender, origin, upload, memory), of one client
    send: Callable[[Any, Sender, Origin, Upload, Any], Sent]
    # (state, key, uploads, reports, cohort), stacked over M
    receive: Callable[[Any, Key, Upload, Any, Cohort], tuple[Upload, Any]]
    stage: str = "clip"  # one of STAGES
    one_for_all: bool = False  # whether one value replaces every upload
    # A client's first memory, by shapes; None for a channel without memory.
    memory: Callable[[Origin, Upload], Any] | None = None
    # The bits in which a changed leaf is sent, by its shape; None if it is sent as is.
    bits: Callable[[Any], float] | None = None
    report_bits: int = 0  # of the report
    shaped: bool = False  # whether `init` needs the shapes of an upload (see `fit`)
    # (key, ids i32[M]) -> f32[M], 0 for a client whose uploads of a round are lost.
    arrives: Callable[[Key, Array], Array] | None = None
    attackers: float = 0.0  # the share of clients that are malicious
    exchange: int = 0  # within the round, from 0; the index of the client's memory


def nothing(start: Start) -> Any:
    """The state of a channel without state."""
    return ()


def as_sent(
    state: Any, sender: Sender, origin: Origin, upload: Upload, memory: Any
) -> Sent:
    """The upload, untouched."""
    return Sent(upload, memory)


def as_received(
    state: Any, key: Key, uploads: Upload, reports: Any, cohort: Cohort
) -> tuple[Upload, Any]:
    """The uploads, untouched, and the state as it was."""
    return uploads, state


def with_origin(
    state: Any, sender: Sender, origin: Origin, upload: Upload, memory: Any
) -> Sent:
    """The upload, untouched; its origin is the report.

    It is for a `receive` that needs the changes of clients.
    """
    return Sent(upload, memory, origin)


NONE = Channel(init=nothing, send=as_sent, receive=as_received)


def sending(send: Callable[[Key, Origin, Upload], Upload]) -> Channel:
    """A channel without state that changes each upload at its client."""

    def stateless(
        state: Any, sender: Sender, origin: Origin, upload: Upload, memory: Any
    ) -> Sent:
        return Sent(send(sender.key, origin, upload), memory)

    return NONE._replace(send=stateless)


def with_change(
    origin: Origin, upload: Upload, change_of: Callable[[Any], Any]
) -> Upload:
    """The upload with its change replaced by `change_of` it.

    It also works for stacked uploads with stacked origins.
    """
    start, values, others = origins.parts(origin, upload)
    change = change_of(tree.sub(values, start))
    return tree.merge(tree.add(start, change), others)


def change_shapes(origin: Origin, upload: Upload) -> Any:
    """The leaves of an upload that are changes, as shapes; None at other leaves."""
    return origins.parts(origin, upload).values


def refuse_mixed(name: str, origin: Origin, upload: Upload) -> None:
    """Refuses uploads with leaves that are no change, which a reducer would mix.

    Raises:
      ValueError: there are such leaves; the message names them.
    """
    names = origins.absent(origin, upload)
    if names:
        raise ValueError(
            f"channel {name!r} replaces every upload by one value, but uploads of this "
            f"method have parts that are no change: {', '.join(names)}; choose another "
            "channel, such as clip"
        )
