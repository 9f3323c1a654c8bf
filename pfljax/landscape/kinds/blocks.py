"""Computes a landscape in blocks, whose results outlive a kill.

They lie in one .npz, which is replaced by a longer one every few seconds. The same
command takes them from there.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax.landscape.finished import Finished
from pfljax.runs import folder
from pfljax.runtime import files
from pfljax.runtime.processes import say

CLIENTS = 50  # whose models lie in memory together
SECONDS = 5.0  # between two writes, and two lines about the progress


class Store(NamedTuple):
    """Where the results of the blocks lie until all are there."""

    file: Path | None = None  # None keeps nothing
    asked: str = ""  # the run and the options: results of others are not used


def compute(
    store: Store,
    what: str,
    blocks: Sequence[Any],
    evaluate: Callable[[Any], Mapping[str, Any]],
) -> dict[str, np.ndarray]:
    """The arrays of `evaluate(block)`, joined along their first axis.

    `what` names the blocks in the store and in the lines about the progress.
    """
    kept = _read(store)
    written = time.monotonic()
    results = []
    for number, block in enumerate(blocks):
        head = f"{what}/{number}/"
        result = {name: kept[head + name] for name in _names(kept, head)}
        if not result:
            result = {name: np.asarray(v) for name, v in evaluate(block).items()}
            kept |= {head + name: values for name, values in result.items()}
            more = number + 1 < len(blocks)
            if store.file and more and time.monotonic() - written > SECONDS:
                _write(store, kept)
                say(f"pfljax: {what}: {number + 1} of {len(blocks)} blocks")
                written = time.monotonic()
        results.append(result)
    return {
        name: np.concatenate([result[name] for result in results])
        for name in results[0]
    }


def compute_clients(
    store: Store,
    what: str,
    run: Finished,
    evaluate: Callable[[Finished], Mapping[str, Any]],
) -> dict[str, np.ndarray]:
    """The arrays [C, ...] of `evaluate` of some clients at a time, by client."""
    parts = run.blocks(CLIENTS)
    order = np.argsort(np.concatenate([part.ids for part in parts]))
    found = compute(store, what, parts, evaluate)
    return {name: values[order] for name, values in found.items()}


def _names(kept: Mapping[str, np.ndarray], head: str) -> Iterable[str]:
    return [name.removeprefix(head) for name in kept if name.startswith(head)]


def _read(store: Store) -> dict[str, np.ndarray]:
    """What an earlier process left, if it was asked for the same."""
    if store.file is None:
        return {}
    kept = folder.read_arrays(store.file)
    return kept if str(kept.pop("asked", "")) == store.asked else {}


def _write(store: Store, kept: Mapping[str, np.ndarray]) -> None:
    assert store.file is not None
    files.make_folder(store.file.parent)
    folder.write_arrays(store.file, {"asked": np.array(store.asked), **kept})


def cut(count: int, size: int) -> list[np.ndarray]:
    """The numbers 0 .. count - 1 in blocks of at most `size`, as equal as possible."""
    return np.array_split(np.arange(count), -(-count // size))
