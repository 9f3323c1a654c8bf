"""Keys: one stream of random numbers for each named purpose."""

import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.types import Array, Key, Turn


def derive(key: Key, purpose: str) -> Key:
    """The key of a named purpose: streams of different names are independent."""
    # Not `hash`, which is another number in every process.
    number = zlib.crc32(purpose.encode())
    return jax.random.fold_in(key, number & 0x7FFFFFFF)


def map_with_keys(function: Callable[[Key, Array], Array], key: Key, tree: Any) -> Any:
    """The function of a key and a leaf for every leaf; each has its own key."""
    leaves, structure = jax.tree.flatten(tree)
    keys = [jax.random.fold_in(key, number) for number in range(len(leaves))]
    return jax.tree.unflatten(structure, map(function, keys, leaves))


def fold(turn: Turn, purpose: str, steps: Array | int | None = None) -> Turn:
    """The turn with the key of a named purpose, for a second `fit`.

    `steps` is the budget of that `fit`; None keeps the budget of the turn.
    """
    budget = turn.steps if steps is None else jnp.int32(steps)
    return turn._replace(key=derive(turn.key, purpose), steps=budget)
