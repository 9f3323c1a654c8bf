"""What stays the same in a run."""

from typing import NamedTuple

from pfljax.core.channel import Channel
from pfljax.core.types import Algorithm, Local
from pfljax.engine.mesh import Grid
from pfljax.selection import Selection


class Setting(NamedTuple):
    """What stays the same in a run, beside the data."""

    algorithm: Algorithm
    local: Local
    selection: Selection
    width: int | None = None  # clients under one vmap; 1 is a loop, None all
    mesh: Grid | None = None  # several devices (pfljax.engine.mesh); None for one
    channel: Channel | None = None  # what happens to uploads on their way
