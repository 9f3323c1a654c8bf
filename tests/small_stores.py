"""Stores of six clients whose records are 40 bytes, for the tests of stores."""

import jax
import numpy as np

from pfljax.engine.disk_store import DiskStore
from pfljax.engine.host_store import HostStore
from pfljax.engine.records import Owner, make_layout

BYTES = 40
LAYOUT = make_layout(
    {"a": jax.ShapeDtypeStruct((9,), np.float32), "b": jax.ShapeDtypeStruct((), "i4")}
)


def owner(kind="disk", clients=6):
    return Owner(kind, "abc", clients, LAYOUT)


def disk(folder, keep=2, clients=6, writable=True):
    return DiskStore(folder / "clients", owner("disk", clients), keep, writable)


def host(folder, clients=6):
    return HostStore(folder / "clients", owner("host", clients))


def stored_records(rng, count):
    return rng.integers(0, 256, (count, BYTES)).astype(np.uint8)


def held(place, clients=6):
    """The contents of a store: {client: bytes}."""
    found, there = place.read(np.arange(clients))
    return {k: found[k].tobytes() for k in range(clients) if there[k]}
