"""Keys: one stream of random numbers for each named purpose."""

import zlib

import jax

from pfljax.core.types import Key, Turn


def derive(key: Key, purpose: str) -> Key:
    """The key of a named purpose: streams of different names are independent."""
    # Not `hash`, which is another number in every process.
    number = zlib.crc32(purpose.encode())
    return jax.random.fold_in(key, number & 0x7FFFFFFF)


def fold(turn: Turn, purpose: str) -> Turn:
    """The same turn with the key of a named purpose, for a second `fit`."""
    return turn._replace(key=derive(turn.key, purpose))
