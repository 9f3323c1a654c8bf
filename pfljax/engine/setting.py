"""The fixed parts of a run."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pfljax import channel
from pfljax.channel import Channel
from pfljax.core.kinds import CLASSES, Scoring
from pfljax.core.types import Algorithm, Local, Task
from pfljax.engine.clock import Clock
from pfljax.engine.mesh import Grid
from pfljax.engine.modes import Mode
from pfljax.selection import Selection


class Groups(NamedTuple):
    """Groups of architectures: client i is in group `pattern[i % len(pattern)]`."""

    algorithms: tuple[Algorithm, ...]  # of each group, over the same server
    tasks: tuple[Task, ...]  # the model of each group
    pattern: tuple[int, ...]

    def of(self, ids: Any) -> Any:
        """The group of each of these clients, i32[...]; traced if `ids` are."""
        return _cyclic(self.pattern, ids)

    def members(self, group: int, num_clients: int) -> np.ndarray:
        """The clients of a group among `num_clients`, i32[C_g], ascending."""
        ids = np.arange(num_clients, dtype=np.int32)
        return ids[self.of(ids) == group]

    def rows(self, ids: Any) -> Any:
        """The row of each of these clients in the stack of its group, i32[...]."""
        pattern = np.asarray(self.pattern)
        is_equal = pattern[:, None] == pattern
        # Members of its group in the whole pattern, and before it in the pattern.
        whole = _cyclic(is_equal.sum(1), ids)
        before = _cyclic(np.tril(is_equal, -1).sum(1), ids)
        return ids // len(pattern) * whole + before


def _cyclic(values: Any, ids: Any) -> Any:
    """values[ids % len(values)], i32[...]; NumPy, or traced if `ids` are."""
    table = np.asarray(values, np.int32)
    if isinstance(ids, jax.Array):
        table = jnp.asarray(table)
    return table[ids % len(table)]


class Setting(NamedTuple):
    """The fixed parts of a run, without the data."""

    algorithm: Algorithm  # of the first group, if there are several
    local: Local
    selection: Selection
    width: int | None = None  # clients under one vmap; 1 is a loop, None all
    mesh: Grid | None = None  # several devices (pfljax.engine.mesh); None for one
    channel: Channel | None = None  # between clients and server
    groups: Groups | None = None  # of architectures; None if all have the same
    clock: Clock | None = None  # of virtual seconds; None for none
    mode: Mode | None = None  # of asynchronous rounds; None for synchronous ones
    scoring: Scoring = CLASSES  # of models, in evaluations


def count_gradients(setting: Setting, steps: Any, size: Any, is_first: Any) -> Any:
    """The work of a client in all exchanges of a round, in gradients of minibatches.

    Args:
      setting: that of the run.
      steps: local steps, i32[M].
      size: training examples, i32[M].
      is_first: bool[M], whether it is the client's first round.
    """
    each = [one.algorithm.work(steps, size, is_first) for one in exchanges(setting)]
    return sum(each[1:], each[0])


def exchanges(setting: Setting) -> list[Setting]:
    """The setting of each exchange of a round: the method's own, and those `then`."""
    every = []
    while True:
        every.append(setting)
        algorithm = setting.algorithm.then
        if algorithm is None:
            return every
        setting = setting._replace(
            algorithm=algorithm,
            groups=setting.groups and _next_rounds(setting.groups),
            channel=setting.channel and channel.in_next_exchange(setting.channel),
        )


def _next_rounds(groups: Groups) -> Groups:
    """The groups with their next exchange of a round."""
    algorithms: Any = tuple(algorithm.then for algorithm in groups.algorithms)
    return groups._replace(algorithms=algorithms)
