"""A partition in a file, which names the examples of each client."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.core.factories import component
from pfljax.data.files import reading
from pfljax.data.partitions.base import Partition, check_partition, from_indices
from pfljax.data.values import ClientsOrNone, Seed

EXPECTED = (
    'expected JSON {"client": [indices]}, an .npz file with an array of indices for '
    "each client, or a CSV file with the columns client and index"
)

PICKLE = (
    "is a pickle, which can run any code when it is read; where you trust it, write "
    "JSON: json.dump({str(k): list(map(int, v)) for k, v in clients.items()}, "
    "open('clients.json', 'w'))"
)


@component
def file(
    labels: Any, num_clients: ClientsOrNone, seed: Seed, *, path: str
) -> Partition:
    """Uses the lists of a file: JSON, .npz, or CSV with the columns client and index.

    The indices count the examples that are dealt, from 0: the official training
    examples, or all with `examples="all"`. NIID-Bench and FedLab have such lists.
    `num_clients` may be None. Clients have the names of the file; numbers are sorted.

    Args:
      path: the file.
    """
    source = Path(path)
    if not source.is_file():
        raise ValueError(f"partition file: no file {path!r}; {EXPECTED}")
    if source.suffix in (".pkl", ".pickle", ".pt"):
        raise ValueError(f"{path} {PICKLE}")
    with reading(source, EXPECTED):
        dealt = from_indices(_read(source))
        check_partition(dealt, len(labels))
    return dealt


def _read(source: Path) -> dict[Any, Any]:
    """The indices of each client by name, in order."""
    if source.suffix in (".npz", ".npy"):
        clients = _read_arrays(source)
    elif source.suffix == ".csv":
        clients = _read_table(source)
    else:
        content = json.loads(source.read_text("utf-8"))
        clients = content if isinstance(content, dict) else dict(enumerate(content))
    if all(str(name).isdecimal() for name in clients):
        clients = dict(sorted(clients.items(), key=lambda item: int(item[0])))
    return clients


def _read_arrays(source: Path) -> dict[Any, Any]:
    try:
        stored = np.load(source, allow_pickle=False)
        return dict(enumerate(stored) if isinstance(stored, np.ndarray) else stored)
    except ValueError as error:  # NumPy's for objects: lists of several lengths, a dict
        raise ValueError(f"it {PICKLE}") from error


def _read_table(source: Path) -> dict[Any, Any]:
    import pandas as pd

    table = pd.read_csv(source)
    return {name: part["index"].to_numpy() for name, part in table.groupby("client")}
