"""Places the data of a federation on the devices of a run."""

import dataclasses

import numpy as np

from pfljax.core.types import ClientData
from pfljax.data import Federation
from pfljax.engine import mesh, placement
from pfljax.evaluation.uncertainty import OodExamples, select_ood
from pfljax.simulate.simulation import Simulation


def place(sim: Simulation, federation: Federation, first: int = 0) -> Federation:
    """The federation with its data on every device, or on those of their clients.

    `first` is the number of its first client.
    """
    grid = sim.setting.mesh
    if sim.ood:
        # Chosen on the host, before examples lie with their clients alone.
        ood = _select_ood(grid, federation, sim.ood)
        federation = dataclasses.replace(federation, ood=ood)
    if federation.public is not None:
        # Every device has all examples of the server.
        public = mesh.place(grid, federation.public)
        federation = dataclasses.replace(federation, public=public)
    if grid is not None and grid.pin_clients:
        owner = owners(sim, federation.num_clients, first)
        parts = placement.place(grid, federation.parts, owner)
        return dataclasses.replace(federation, **parts)
    # Train, validation and test share one pool of examples, which is placed once.
    spans = {name: (part.offset, part.size) for name, part in federation.parts.items()}
    pool, spans = mesh.place(grid, (federation.train.examples, spans))
    parts = {name: ClientData(pool, *span) for name, span in spans.items()}
    return dataclasses.replace(federation, **parts)


def _select_ood(
    grid: mesh.Grid | None, federation: Federation, count: int
) -> dict[str, OodExamples]:
    """About `count` examples by split, on every device, to detect other classes by."""
    by_split = {}
    for split in ("test", "validation"):
        data = getattr(federation, split)
        if np.any(data.size):
            classes = federation.num_classes
            ood = select_ood(federation.train, data, classes, count)
            examples = mesh.place(grid, ood.examples)
            by_split[split] = ood._replace(examples=examples)
    return by_split


def owners(sim: Simulation, count: int, first: int = 0) -> np.ndarray:
    """The devices of `count` pinned clients from number `first`, i64[count]."""
    grid = sim.setting.mesh
    assert grid is not None
    groups = sim.setting.groups
    stack = np.zeros(count, np.int64)
    if groups is not None:
        stack = groups.of(first + np.arange(count))
    return placement.owners(grid.size, stack)
