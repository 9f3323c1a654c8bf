"""HDF5 files in the layout of TensorFlow Federated: examples/CLIENT/COLUMN.

TFF, and FedML after it, have EMNIST ("pixels", "label") and CIFAR-100 ("image",
"label") as `fed_emnist_train.h5` and `fed_emnist_test.h5`, with the same clients.
"""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.core.factories import validate
from pfljax.data.arrays import OFFICIAL_TEST, OFFICIAL_TRAIN, Arrays, from_arrays
from pfljax.data.files import reading
from pfljax.data.values import Classes

ROOT = "examples"  # the group of the clients
LAYOUT = (
    f"expected {ROOT}/CLIENT with columns of numbers x= and label=, as TFF writes "
    "EMNIST and CIFAR-100; texts are not read: for Shakespeare choose leaf"
)


@validate
def hdf5(
    *,
    path: str,
    test: str | None = None,
    x: str = "pixels",
    label: str = "label",
    classes: Classes = None,
) -> Arrays:
    """Loads an HDF5 file of TensorFlow Federated, whose groups are natural clients.

    Images [N, height, width] become [N, height, width, 1].

    Args:
      path: the file.
      test: the file of the official test examples, if they are in another.
      x: the column of the examples, such as "image".
      label: the column of the labels, integers from 0.
      classes: K, if not all classes are in the files.

    Raises:
      ValueError: h5py is not installed, there is no such file, or it differs.
    """
    if importlib.util.find_spec("h5py") is None:
        raise ValueError("hdf5 needs h5py; run pip install 'pfljax[hdf5]'")
    files = [(Path(path), OFFICIAL_TRAIN)]
    if test is not None:
        files.append((Path(test), OFFICIAL_TEST))
    examples, labels, clients, official = [], [], [], []
    for file, part in files:
        if not file.is_file():
            raise ValueError(
                f"no file {str(file)!r}; give path= and test= of .h5 files"
            )
        with reading(file, LAYOUT):
            values, y, names = _read(file, x, label)
        examples.append(values)
        labels.append(y)
        clients.append(names)
        official.append(np.full(len(y), part))
    with reading(Path(path), LAYOUT):
        return from_arrays(
            examples[0] if test is None else np.concatenate(examples),
            np.concatenate(labels),
            client=np.concatenate(clients),
            official=np.concatenate(official),
            num_classes=classes,
            name=Path(path).stem,
        )


def _read(file: Path, x: str, label: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The examples [N, ...], labels [N] and clients [N] of one file."""
    h5py = importlib.import_module("h5py")
    with h5py.File(file) as stored:
        clients = stored[ROOT]
        sizes = [len(_column(clients, name, label)) for name in clients]
        first = _column(clients, next(iter(clients)), x)
        # One array for all clients: joining theirs would take twice the memory.
        examples = np.empty((sum(sizes), *first.shape[1:]), first.dtype)
        labels, end = [], 0
        for name, size in zip(clients, sizes, strict=True):
            values = _column(clients, name, x)
            if len(values) != size:
                raise ValueError(f"client {name!r} has {len(values)} x, {size} labels")
            examples[end : end + size] = values[()]
            labels.append(_column(clients, name, label)[()].reshape(size))
            end += size
        is_image = examples.ndim == 3
        owner = np.repeat(list(clients), sizes)
    return examples[..., None] if is_image else examples, np.concatenate(labels), owner


def _column(clients: Any, name: str, column: str) -> Any:
    if column not in clients[name]:
        raise ValueError(
            f"client {name!r} has no column {column!r}; it has "
            f"{', '.join(clients[name])}"
        )
    return clients[name][column]
