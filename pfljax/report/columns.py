"""The columns of the comparison tables, and the records of a table."""

from typing import Any, NamedTuple

import numpy as np

from pfljax.report.runs import number


class Column(NamedTuple):
    """How one number is shown."""

    key: str
    title: str
    scale: float  # shown = raw * scale
    digits: int
    better: int  # 1 more is better, -1 less is better, 0 not ranked
    over_seeds: bool = False  # show the std over seeds beside the mean


COLUMNS = (
    Column("accuracy", "Accuracy (%), mean ± std over seeds", 100, 2, 1, True),
    Column("std_clients", "Std over clients (points)", 100, 2, 0),
    Column("weighted", "Weighted by rows (%)", 100, 2, 1),
    Column("worst10", "Worst 10 % of clients (%)", 100, 2, 1),
    Column("best10", "Best 10 % of clients (%)", 100, 2, 1),
    Column("ece", "ECE", 1, 3, -1),
    Column("worse_than_local", "Clients worse off than local (%)", 100, 1, -1),
    Column("mb_up", "MB up", 1e-6, 2, 0),
    Column("mb_down", "MB down", 1e-6, 2, 0),
)
CALIBRATION = (
    Column("top5", "Top-5 accuracy (%)", 100, 2, 1, True),
    Column("loss", "Loss (nats)", 1, 3, -1, True),
    Column("ece", "ECE", 1, 3, -1, True),
    Column("mce", "MCE", 1, 3, -1, True),
    Column("ece_batchwise", "ECE, mean over batches", 1, 3, -1, True),
    Column("mce_batchwise", "MCE, mean over batches", 1, 3, -1, True),
)


class Row(NamedTuple):
    """One method, judged by one model. n seeds."""

    method: str
    judged: str
    ranked: bool  # False for what no user could reach, as an oracle
    seeds: tuple[int, ...]  # [n]
    rounds: tuple[int, ...]  # [n], the round that was judged
    values: dict[str, np.ndarray]  # f64[n] a column, raw, NaN where not defined


class Table(NamedTuple):
    """A table before it is formatted."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def numbers_of(metrics: dict[str, Any]) -> dict[str, float]:
    """The columns that come from an evaluation record's metrics."""
    accuracy = metrics.get("accuracy") or {}
    keys = ("std", "weighted", "worst10", "best10")
    found = {key: number(accuracy.get(key)) for key in keys}
    found["std_clients"] = found.pop("std")
    names = ("accuracy", *(column.key for column in CALIBRATION))
    means = {name: number((metrics.get(name) or {}).get("mean")) for name in names}
    return found | means
