"""Channels that compress changes, with error feedback.

    p = Delta + e;   sent = C(p);   e <- p - sent           (with error feedback)

e is the client's memory: zero before its first upload, and unchanged when the client
does not take part. Seide et al., Interspeech 2014; Stich et al., NeurIPS 2018,
https://arxiv.org/abs/1809.07599, Algorithm 1.

A compressor acts on each leaf. A leaf that it would not make shorter is sent as it is:
if all coordinates are sent, the bits are those without a channel. Leaves that are no
change are sent as they are, too. The server computes with floats, so the compressed
form is never made: a leaf is changed to what the server would restore, and its bits are
counted.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax

from pfljax.channel import origins
from pfljax.channel.base import NONE, Channel, Sender, Sent, change_shapes
from pfljax.core import tree
from pfljax.core.keys import map_with_keys
from pfljax.core.types import Array, Key, Origin, Upload


class Compressor(NamedTuple):
    """How a leaf of a change is sent."""

    arrived: Callable[[Key, Array], Array]  # the leaf, as the server restores it
    bits: Callable[[Any], float]  # bits of a leaf, from its shape


def compressing(compressor: Compressor, feedback: bool) -> Channel:
    """A channel that sends changes by this compressor."""

    def send(
        state: Any, sender: Sender, origin: Origin, upload: Upload, memory: Any
    ) -> Sent:
        start, values, others = origins.parts(origin, upload)
        change = tree.sub(values, start)
        if feedback:
            change = tree.add(change, memory)
        arrived = map_with_keys(partial(_restore, compressor), sender.key, change)

        def as_sent(value: Array, begun: Array, change: Array) -> Array:
            return value if _is_whole(compressor, value) else begun + change

        sent = jax.tree.map(as_sent, values, start, arrived)
        kept = tree.sub(change, arrived) if feedback else memory
        return Sent(tree.merge(sent, others), kept)

    def bits(leaf: Any) -> float:
        return min(compressor.bits(leaf), bits_of_whole(leaf))

    return NONE._replace(
        send=send,
        stage="compress",
        memory=no_error if feedback else None,
        bits=bits,
    )


def no_error(origin: Origin, upload: Upload) -> Any:
    """The memory of a client that has not sent anything yet, as shapes."""
    return tree.zeros(change_shapes(origin, upload))


def bits_of_whole(leaf: Any) -> int:
    """The bits of a leaf that is sent as it is."""
    return 8 * math.prod(leaf.shape) * leaf.dtype.itemsize


def _is_whole(compressor: Compressor, leaf: Any) -> bool:
    return compressor.bits(leaf) >= bits_of_whole(leaf)


def _restore(compressor: Compressor, key: Key, leaf: Array) -> Array:
    """The leaf as it arrives."""
    return leaf if _is_whole(compressor, leaf) else compressor.arrived(key, leaf)
