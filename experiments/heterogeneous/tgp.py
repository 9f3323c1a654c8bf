"""The protocol that the two tables of the FedTGP paper share.

Zhang et al., AAAI 2024, https://arxiv.org/abs/2401.03230. The protocol is that of
FedAKT (`fedakt/protocol.py`) with other models, features of 512, and 1,000 rounds. The
paper's numbers (`fedtgp_published.csv`) are mean accuracies over three trials at the
best round.

lam of FedProto and FedTGP is 0.1, as in the paper, where it weights the distance of
prototypes, not its square. The published scripts have 10, which weights a mean of
squares. FedDistill and FedGen are as in `fedakt/protocol.py`.

The small scale has the data, the narrow CNNs and the runs of FedAKT's small scale. At
most it can reproduce the ranking of the published numbers.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
# FedAKT's study has the protocol; studies lie in no package.
sys.path.append(str(HERE.parent / "fedakt"))
from protocol import LATER, METHODS, Row, Table  # noqa: E402
from protocol import SMALL as SMALL  # noqa: E402
from protocol import Column as Column  # noqa: E402
from protocol import column as column  # noqa: E402
from protocol import main as main  # noqa: E402
from protocol import models as models  # noqa: E402
from shared import best_round as best_round  # noqa: E402
from shared.published import tau  # noqa: E402

PUBLISHED = HERE / "fedtgp_published.csv"
ROUNDS = 1000
NAMES = ("LG-FedAvg", "FedGen", "FML", "FedKD", "FedDistill", "FedProto")
ROWS = {**{name: METHODS[name] for name in NAMES}, "FedTGP": LATER["FedTGP"]}


def published(table: int, setting: str, dataset: str, models: str) -> dict[str, float]:
    """Published accuracies of a column, percent by method."""
    wanted = {
        "table": str(table),
        "setting": setting,
        "dataset": dataset,
        "models": models,
    }
    with open(PUBLISHED, newline="", encoding="utf-8") as file:
        return {
            row["method"]: float(row["accuracy"])
            for row in csv.DictReader(file)
            if wanted.items() <= row.items()
        }


def table_of(name: str, numbers: dict[str, dict[str, float]]) -> Table:
    """How a table is written whose published `numbers` are by column and method."""

    def beside(column: str, method: str) -> float | None:
        return numbers.get(column, {}).get(method)

    def ranking(problem: Column, rows: Sequence[Row]) -> str:
        theirs = numbers.get(problem.name, {})
        own = [r for r in rows if r.column == problem.name and r.method in theirs]
        # Of two methods tau is 1 or -1, which says nothing.
        if len(own) < 3:
            return ""
        known = [theirs[row.method] for row in own]
        by_pool = tau(known, [row.best_acc_pooled for row in own])
        by_client = tau(known, [row.best_acc_mean for row in own])
        return (
            f"Kendall's tau of the published ranking with the measured one: "
            f"{by_pool:.2f} by best pooled, {by_client:.2f} by best mean"
        )

    return Table(name, HERE / "results", beside, ranking, runs="fedtgp")
