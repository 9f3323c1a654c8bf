"""What laws play again, and look at."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.conformance import toy
from pfljax.conformance.play import Played
from pfljax.conformance.script import Script, as_written
from pfljax.core.types import ClientData, Examples, RunState


def replayed(
    played: Played,
    state: RunState,
    count: int,
    script: Script | None = None,
) -> RunState:
    """The state after `count` more rounds; `state` is kept."""
    script = script or as_written()
    # The program donates its state, and laws look at one state again and again.
    state = toy.copy(state)
    after, _ = played.program(state, played.train, count, script)
    return after


def rows_of(clients: Any, rows: Any) -> Any:
    """The states of the clients at `rows`."""
    return jax.tree.map(lambda leaf: leaf[rows], clients)


def in_one_vector(tree: Any) -> np.ndarray:
    """All numbers of a tree."""
    return np.concatenate([array.ravel() for array in toy.arrays(tree)])


def poisoned(train: ClientData) -> ClientData:
    """The same training rows among rows of NaN."""
    pool = train.examples
    in_train = np.zeros(len(pool.y), bool)
    for offset, size in zip(train.offset, train.size, strict=True):
        in_train[offset : offset + size] = True
    # Without a test row in the pool the law would hold of anything.
    assert not in_train.all()
    x = jnp.where(in_train[:, None], pool.x, jnp.nan)
    return train._replace(examples=Examples(x, pool.y))
