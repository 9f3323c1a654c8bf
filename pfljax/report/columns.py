"""The columns of the comparison tables, and the records of a table."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pfljax.evaluation.fairness import DECILES
from pfljax.report.runs import number


class Column(NamedTuple):
    """How one number is shown."""

    key: str
    title: str
    scale: float  # shown = raw * scale
    digits: int
    better: int  # 1 more is better, -1 less is better, 0 not ranked
    over_seeds: bool = False  # show the std over seeds beside the mean
    tested: bool = False  # bold is what cannot be told from the best, by a paired test
    is_p: bool = False  # a number that would read 0 is shown as the last digit's 1


def _share(key: str, title: str) -> Column:
    """An accuracy in percent, of which more is better."""
    return Column(key, title, scale=100, digits=2, better=1, tested=True)


WORSE_THAN_LOCAL = Column(
    "worse_than_local",
    "Clients worse off than local (%)",
    scale=100,
    digits=1,
    better=-1,
)
COLUMNS = (
    Column(
        "accuracy",
        "Accuracy (%), mean ± std over seeds",
        scale=100,
        digits=2,
        better=1,
        over_seeds=True,
        tested=True,
    ),
    Column("std_clients", "Std over clients (points)", scale=100, digits=2, better=0),
    _share("weighted", "Weighted by rows (%)"),
    _share("worst10", "Worst 10 % of clients (%)"),
    _share("best10", "Best 10 % of clients (%)"),
    Column("ece", "ECE", scale=1, digits=3, better=-1),
    WORSE_THAN_LOCAL,
    Column("mb_up", "MB up", scale=1e-6, digits=2, better=0),
    Column("mb_down", "MB down", scale=1e-6, digits=2, better=0),
)
CALIBRATION = (
    _share("top5", "Top-5 accuracy (%)")._replace(over_seeds=True),
    Column(
        "loss",
        "Negative log likelihood (nats)",
        scale=1,
        digits=3,
        better=-1,
        over_seeds=True,
    ),
    Column("brier", "Brier score", scale=1, digits=3, better=-1, over_seeds=True),
    Column("entropy", "Entropy (nats)", scale=1, digits=3, better=0, over_seeds=True),
    Column(
        "auroc",
        "Foreign classes (AUROC)",
        scale=1,
        digits=3,
        better=1,
        over_seeds=True,
    ),
    Column("ece", "ECE", scale=1, digits=3, better=-1, over_seeds=True),
    Column("mce", "MCE", scale=1, digits=3, better=-1, over_seeds=True),
    Column(
        "ece_batchwise",
        "ECE, mean over batches",
        scale=1,
        digits=3,
        better=-1,
        over_seeds=True,
    ),
    Column(
        "mce_batchwise",
        "MCE, mean over batches",
        scale=1,
        digits=3,
        better=-1,
        over_seeds=True,
    ),
)
DECILE_COLUMNS = tuple(_share(f"p{q}", f"P{q} (%)")._replace(digits=1) for q in DECILES)
FAIRNESS = (
    # A spread is not ranked: clients that are all badly off are alike.
    Column("variance", "Variance (points²)", scale=1e4, digits=1, better=0),
    Column("iqr", "IQR (points)", scale=100, digits=2, better=0),
    Column("range", "Range (points)", scale=100, digits=2, better=0),
    Column("gini", "Gini", scale=1, digits=4, better=0),
    Column("jain", "Jain", scale=1, digits=4, better=0),
    Column("entropy_fairness", "Entropy", scale=1, digits=4, better=0),
    Column("cosine_fairness", "Cosine", scale=1, digits=4, better=0),
    Column("gain_local", "Gain over local (points)", scale=100, digits=2, better=1),
    WORSE_THAN_LOCAL,
    Column("gain_server", "Gain over server (points)", scale=100, digits=2, better=1),
    Column(
        "worse_than_server",
        "Clients worse off than server (%)",
        scale=100,
        digits=1,
        better=-1,
    ),
    *DECILE_COLUMNS,
)

DETECTION = "auroc"
DETECTED = (
    " AUROC: of the entropy of predictions, for rows of classes of which the client "
    "has no training row, against its own; over the clients that lack a class."
)


class Clients(NamedTuple):
    """The clients of one run, and how they fare."""

    data: str  # SHA-256 of the rows and who holds them
    accuracy: np.ndarray | None  # f[C], NaN without test rows; None where not kept


class Row(NamedTuple):
    """One method, judged by one model. n seeds."""

    method: str
    judged: str
    ranked: bool  # False for what no user could reach, as an oracle
    seeds: tuple[int, ...]  # [n]
    rounds: tuple[int, ...]  # [n], the round that was judged
    values: dict[str, np.ndarray]  # f64[n] a column, raw, NaN where not defined
    clients: tuple[Clients, ...] = ()  # [n]; empty where the rows of runs are not known
    baseline: bool = False  # all others are compared with it


def stated_once(rows: Sequence[Row]) -> list[Row]:
    """The rows, those of a method with equal numbers as one: "personal = server"."""
    different: list[Row] = []
    for row in rows:
        twins = [
            i
            for i, other in enumerate(different)
            if other.method == row.method and same_numbers(row, other)
        ]
        if twins:
            (first,) = twins
            # Some have an equals sign of their own, as "λ = 0.5".
            text = f"({row.judged})" if "=" in row.judged else row.judged
            judged = f"{different[first].judged} = {text}"
            different[first] = different[first]._replace(judged=judged)
        else:
            different.append(row)
    return different


def same_numbers(row: Row, other: Row) -> bool:
    """Whether two rows have the same numbers on the same seeds."""
    same = ("ranked", "seeds", "rounds")
    if any(getattr(row, name) != getattr(other, name) for name in same):
        return False
    # What has no accuracy has no number that could be equal.
    if np.isnan(row.values["accuracy"]).all():
        return False
    pairs = [(row.values[key], other.values[key]) for key in row.values]
    return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


class Table(NamedTuple):
    """A table before it is formatted."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    names: tuple[str, str] = ("Method", "Model judged")  # headings of a row's own two


def numbers_of(metrics: dict[str, Any]) -> dict[str, float]:
    """The columns that come from an evaluation record's metrics."""
    accuracy = metrics.get("accuracy") or {}
    values = {"std_clients": number(accuracy.get("std"))}
    for key in ("weighted", "worst10", "best10"):
        values[key] = number(accuracy.get(key))
    means = ["accuracy"]
    means += [column.key for column in CALIBRATION]
    for name in means:
        # Old runs have not recorded every metric.
        figures = metrics.get(name) or {}
        values[name] = number(figures.get("mean"))
    return values
