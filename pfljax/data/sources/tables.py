"""What the sources with columns share.

`read` takes a table in chunks, so that memory holds the arrays and one chunk.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax.data.arrays import OFFICIAL_NAMES, Arrays, from_arrays
from pfljax.data.sources.cells import examples
from pfljax.data.values import infer_type

ROWS = 4096  # of a chunk
EXPECTED = "expected a table with a column label= and columns of numbers"


class Columns(NamedTuple):
    """The columns that are no part of x."""

    label: str
    client: str | None = None
    split: str | None = None
    groups: str = ""  # one name, or "(a,b)"
    skip: str = ""
    task: str | None = None  # of the labels, a name in `core.kinds`


def require_file(path: str) -> Path:
    """The path of a table, which has to be there."""
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"no file {path!r}; give path= a table")
    return file


def list_class_names(schema: Any) -> dict[str, list[str]]:
    """The names of the integers in columns of Hugging Face's type ClassLabel."""
    about = json.loads((schema.metadata or {}).get(b"huggingface", "{}"))
    features = about.get("info", {}).get("features", {})
    return {
        column: feature["names"]
        for column, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
    }


def read(
    name: str,
    chunks: Iterable[Any],
    columns: Columns,
    classes: int | None,
    class_names: Mapping[str, list[str]] | None = None,
    size: int | None = None,
) -> Arrays:
    """Reads a table whose `chunks` are pandas frames.

    `class_names` are those of columns of integers, and `size` is that of images.
    """
    known = class_names or {}
    x, values = _collect(chunks, columns, size)
    targets = _list(columns.label)
    labels = _stack([values[name] for name in targets])
    names = known.get(columns.label)
    if labels.dtype.kind == "U":
        if len(targets) > 1 or columns.task not in (None, "classes"):
            _refuse_texts(targets, values)
        found, labels = np.unique(labels, return_inverse=True)
        names = [*map(str, found)]
    for column in known.keys() & values.keys() - {columns.label}:
        if values[column].min() < 0:
            raise ValueError(
                f"column {column!r} has {values[column].min()} for no class"
            )
        values[column] = np.array(known[column])[values[column]]
    split = columns.split
    return from_arrays(
        x,
        labels,
        client=None if columns.client is None else values[columns.client],
        official=None if split is None else _official(split, values[split]),
        task=columns.task,
        num_classes=classes if names is None else len(names),
        class_names=names,
        groups={group: values[group] for group in _list(columns.groups)},
        name=name,
    )


def _list(text: str) -> list[str]:
    """The names in "a" or "(a,b)"."""
    return [name.strip() for name in text.strip("()").split(",") if name.strip()]


def _collect(
    chunks: Iterable[Any], columns: Columns, size: int | None
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """x [N, ...] of all chunks, and the columns that are no part of it by name."""
    named = [
        *_list(columns.label),
        columns.client,
        columns.split,
        *_list(columns.groups),
    ]
    parts: dict[str, list[np.ndarray]] = {name: [] for name in named if name}
    skipped = _list(columns.skip)
    x: Any = None
    rows = 0
    for chunk in filter(len, chunks):
        for name in (*parts, *skipped):
            column = _column(chunk, name, rows)
            if name in parts:
                parts[name].append(column)
        part = examples(chunk.drop(columns=[*parts, *skipped]), size, rows)
        x = _append(x, part, rows)
        rows += len(part)
    if x is None:
        raise ValueError("it has no rows")
    for name, columns_of_chunks in parts.items():
        if len({column.dtype.kind == "U" for column in columns_of_chunks}) > 1:
            raise ValueError(
                f"column {name!r} has numbers and texts; write texts alone"
            )
    return x, {name: np.concatenate(each) for name, each in parts.items()}


def _append(x: np.ndarray | None, part: np.ndarray, rows: int) -> np.ndarray:
    """x with the examples of another chunk."""
    if x is None:
        return np.array(part, order="C")
    if x.ndim == 4 and x.shape[-1] == 1:  # grey: the first images in colour may come
        x = np.repeat(x, part.shape[-1], axis=-1)
    if x.shape[1:-1] != part.shape[1:-1]:
        raise ValueError(
            f"examples have shape {list(x.shape[1:])}, and from row {rows} on "
            f"{list(part.shape[1:])}; expected one shape, as size= makes of images"
        )
    # In place: two arrays would take twice the memory.
    x.resize((rows + len(part), *x.shape[1:]), refcheck=False)
    x[rows:] = part
    return x


def _column(table: Any, name: str, rows: int) -> np.ndarray:
    """A column without missing values, as integers, floats or texts [N]."""
    if name not in table.columns:
        raise ValueError(f"it has no column {name!r}; it has {', '.join(table)}")
    column = table[name]
    if column.hasnans:
        row = rows + column.isna().to_numpy().argmax()
        raise ValueError(f"column {name!r} lacks a value in row {row}")
    return infer_type(column.to_numpy())


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


def _refuse_texts(targets: list[str], values: Mapping[str, np.ndarray]) -> None:
    """Raises a ValueError with a text of the first of these columns that has texts."""
    name = next(name for name in targets if values[name].dtype.kind == "U")
    raise ValueError(
        f"column {name!r} has the text {values[name].item(0)!r}; only classes in "
        "one column may be texts: write numbers, with a decimal point"
    )


def _stack(labels: list[np.ndarray]) -> np.ndarray:
    """The targets [N], or [N, D] of several columns."""
    return labels[0] if len(labels) == 1 else np.stack(labels, 1)
