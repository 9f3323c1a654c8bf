"""Tables: CSV and Parquet files with a row for each example."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.core.factories import validate
from pfljax.data.arrays import OFFICIAL_NAMES, Arrays, from_arrays
from pfljax.data.edge import Classes, plain, reading


@validate
def csv(
    *,
    path: str,
    label: str = "label",
    client: str | None = None,
    split: str | None = None,
    skip: str = "",
    classes: Classes = None,
) -> Arrays:
    """Loads a CSV file with a line of names; the other columns are x, f32[N, columns].

    Args:
      path: the file.
      label: the column of the labels, texts or integers from 0.
      client: the column that names the client of each example.
      split: the column with "train", "test" or "validation", or 0, 1 or 2.
      skip: columns that models do not see: "id", or "(id,name)".
      classes: K, if not all classes are in the file.

    Raises:
      ValueError: there is no such file or column, or a value is no number.
    """
    import pandas as pd

    return _load(path, pd.read_csv, label, client, split, skip, classes)


@validate
def parquet(
    *,
    path: str,
    label: str = "label",
    client: str | None = None,
    split: str | None = None,
    skip: str = "",
    classes: Classes = None,
) -> Arrays:
    """Loads a Parquet file; its columns and the options are those of `csv`."""
    import pandas as pd

    return _load(path, pd.read_parquet, label, client, split, skip, classes)


def _load(
    path: str,
    read: Callable[[Path], Any],
    label: str,
    client: str | None,
    split: str | None,
    skip: str,
    classes: int | None,
) -> Arrays:
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"no file {path!r}; give path= a table")
    with reading(file, "expected a table with a column label= and columns of numbers"):
        table = read(file)
        columns = {
            name: _column(table, name)
            for name in (label, client, split)
            if name is not None
        }
        skipped = [name.strip() for name in skip.strip("()").split(",") if name]
        for name in skipped:
            _column(table, name)
        x = table.drop(columns=[*columns, *skipped])
        labels = columns[label]
        names = None
        if labels.dtype.kind == "U":
            found, labels = np.unique(labels, return_inverse=True)
            names = tuple(map(str, found))
        return from_arrays(
            _numbers(x),
            labels,
            client=None if client is None else columns[client],
            official=None if split is None else _official(split, columns[split]),
            num_classes=classes if names is None else len(names),
            class_names=names,
            name=file.stem,
        )


def _column(table: Any, name: str) -> np.ndarray:
    """A column without missing values, as integers, floats or texts [N]."""
    if name not in table.columns:
        raise ValueError(f"it has no column {name!r}; it has {', '.join(table)}")
    column = table[name]
    if column.hasnans:
        raise ValueError(
            f"column {name!r} lacks a value in row {column.isna().argmax()}"
        )
    return plain(column.to_numpy())


def _numbers(x: Any) -> np.ndarray:
    """The columns that models see, f32[N, columns]."""
    for name in x.columns:
        if x[name].dtype.kind not in "iufb":
            raise ValueError(
                f"column {name!r} is not of numbers; encode it, or leave it out: "
                f"skip={name}"
            )
    return x.to_numpy(np.float32)


def _official(name: str, column: np.ndarray) -> np.ndarray:
    """The numbers of the splits in a column of their names, or of these numbers."""
    if column.dtype.kind != "U":
        return column
    unknown = sorted({*column.tolist()} - {*OFFICIAL_NAMES})
    if unknown:
        raise ValueError(
            f"column {name!r} has {unknown[0]!r}; expected {', '.join(OFFICIAL_NAMES)}"
        )
    return np.array([OFFICIAL_NAMES.index(part) for part in column.tolist()])
