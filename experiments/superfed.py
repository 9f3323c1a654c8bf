"""What the experiments of the SuperFed paper share: protocol, methods, tables.

Hahn, Jeong, Lee, KDD 2022, https://arxiv.org/abs/2109.07628. Published numbers are in
`published/superfed.csv` (mean and population std over clients of one run); those of
SuPerFed take the best lambda of each client on its test rows. The methods are as in the
authors' code, which made the numbers: un-squared proximal terms, APFL with the round's
w and alpha = .25, pFedMe with theta trained an epoch at a time and judged by w. Their
SCAFFOLD is FedAvg; here it is SCAFFOLD, of option I: under momentum option II is not
the mean gradient.

A column of a table is one problem. For each method it is one sweep over the seeds, in
OUT/COLUMN/METHOD: killed, the same command goes on with the runs that are not finished.
"""

import argparse
import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import kendalltau

from pfljax.cli import use_compile_cache
from pfljax.config import Experiment
from pfljax.report.style import GREY, GRID, INK, PALETTE, new_figure, save_figure
from pfljax.sweep import Sweep, sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUBLISHED = Path(__file__).parent / "published" / "superfed.csv"
PROTOCOL = Experiment(
    clients=100,
    cohort=5,
    rounds=500,
    epochs=10,
    batch_size=10,
    lr=0.01,
    lr_decay=0.999,
    momentum=0.9,
    weight_decay=1e-4,
    test=0.2,
    validation=0.0,
    eval_every=50,
)
MNIST = PROTOCOL.replace(
    dataset="mnist",
    partition="shards_in_order:per_client=2",
    model="twonn_superfed",
)
CIFAR10 = PROTOCOL.replace(
    dataset="cifar10:size=28",
    partition="shards_in_order:per_client=2",
    model="twocnn_superfed",
)


class Method(NamedTuple):
    """A row of the tables."""

    algorithm: str
    hyper: Mapping[str, Any] = MappingProxyType({})
    judged: tuple[str, str] = ("personal", "")  # (model, lambda) behind the number
    settings: Mapping[str, Any] = MappingProxyType({})  # in place of the protocol's


ORACLE = ("mixture", "oracle")
METHODS = {
    "FedAvg": Method("fedavg", judged=("server", "")),
    "FedProx": Method("fedprox", {"mu": 0.01, "prox": "norm"}, ("server", "")),
    "SCAFFOLD": Method("scaffold", {"option": "I"}, ("server", "")),
    "LG-FedAvg": Method("lg_fedavg", {"weighting": "rows"}),
    "FedPer": Method("fedper"),
    "APFL": Method(
        "apfl",
        {"as_in": "superfed-code", "alpha": 0.25, "adaptive": False}
        | {"weighting": "rows"},
    ),
    "pFedMe": Method(
        "pfedme",
        {"as_in": "superfed-code", "lam": 15.0, "weighting": "rows"},
        ("server", ""),
    ),
    "Ditto": Method("ditto", {"lam": 1.0, "personal_epochs": 5, "prox": "norm"}),
    "FedRep": Method(
        "fedrep", {"head_epochs": 10, "weighting": "rows"}, settings={"epochs": 5}
    ),
    "SuPerFed-MM": Method(
        "superfed",
        {"mixing": "model", "mu": 0.01, "nu": 1.0, "prox": "norm"},
        ORACLE,
    ),
    "SuPerFed-LM": Method(
        "superfed",
        {"mixing": "layer", "mu": 0.01, "nu": 2.0, "prox": "norm"},
        ORACLE,
    ),
}


class Column(NamedTuple):
    """One problem of a table."""

    name: str  # of its folder and in the table
    published: dict[str, str]  # which rows of the published numbers are its own
    experiment: Experiment  # at paper scale
    small: dict[str, Any]  # settings of the small scale
    hyper: Mapping[str, Mapping[str, Any]] = MappingProxyType({})  # tuned to it


class Cell(NamedTuple):
    """A measured number beside the published one, in the table's unit."""

    column: str
    method: str
    judged: str  # "personal", "server", "mixture oracle"
    published: float  # mean over clients, NaN where none is
    published_std: float  # population std over clients
    mean: float  # over clients, mean over seeds
    over_clients: float  # population std, mean over seeds
    over_seeds: float  # sample std of the mean, NaN for one seed
    seeds: int
    rounds: int


def experiment_of(column: Column, label: str, small: bool) -> Experiment:
    """The experiment behind one cell."""
    method, scale = METHODS[label], column.small if small else {}
    return column.experiment.replace(
        algorithm=method.algorithm,
        hyper={**method.hyper, **column.hyper.get(label, {})},
        label=label,
        **{**method.settings, **scale},
    )


def published(column: Column) -> dict[str, tuple[float, float]]:
    """Published (mean, std over clients) of each method, in the table's unit."""
    with open(PUBLISHED, newline="", encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if all(row[key] == value for key, value in column.published.items())
        ]
    return {row["method"]: (float(row["mean"]), float(row["std"])) for row in rows}


def cells(
    column: Column, label: str, found: Sweep, metric: str = "accuracy"
) -> Iterator[Cell]:
    """The numbers of a method after the last round, on test rows, as published first.

    The rest is what the method's other models give, without published numbers.
    """
    rows = [*found.rows()]
    last = max(row["round"] for row in rows)
    rows = [row for row in rows if row["round"] == last and row["split"] == "test"]
    rows = [row for row in rows if row["metric"] == metric]
    first = METHODS[label].judged
    others = dict.fromkeys((row["model"], row["lambda"]) for row in rows)
    known = ("personal", ""), ("server", ""), ORACLE
    theirs = published(column).get(label, (np.nan, np.nan))
    scale = 100 if metric in ("accuracy", "top5") else 1
    for judged in (first, *(j for j in others if j in known and j != first)):
        own = [r for r in rows if (r["model"], r["lambda"]) == judged]
        means, stds = scale * np.array([[r["mean"], r["std"]] for r in own]).T
        spread = means.std(ddof=1) if len(means) > 1 else np.nan
        numbers = theirs if judged == first else (np.nan, np.nan)
        text = " ".join(filter(None, judged))
        figures = means.mean(), stds.mean(), spread, len(means), last
        yield Cell(column.name, label, text, *numbers, *figures)


def arguments(doc: str, out: str, columns: Iterable[Column]) -> argparse.Namespace:
    """The options that all tables have."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--scale", choices=("small", "paper"), default="small")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    names = [column.name for column in columns]
    parser.add_argument("--columns", nargs="+", choices=names, default=names)
    parser.add_argument("--only", nargs="+", choices=[*METHODS], default=[*METHODS])
    parser.add_argument("--rounds", type=int, help="in place of the scale's")
    parser.add_argument("--out", help=f"default {out}-SCALE")
    given = parser.parse_args()
    given.out = Path(given.out or f"{out}-{given.scale}")
    return given


def run(
    given: argparse.Namespace, columns: Sequence[Column], metric: str = "accuracy"
) -> None:
    """Runs what is not finished, and writes the table of what was asked for."""
    use_compile_cache()
    found: list[Cell] = []
    for column in columns:
        for label in METHODS:
            if column.name in given.columns and label in given.only:
                experiment = experiment_of(column, label, given.scale == "small")
                if given.rounds:
                    experiment = experiment.replace(rounds=given.rounds)
                place = given.out / column.name / label
                print(f"{column.name}, {label}", flush=True)
                over = {"seed": given.seeds}
                swept = sweep(experiment, over, out=place, quiet=False)
                found += cells(column, label, swept, metric)
    print(write(given.out, found))


def write(out: Path, found: Sequence[Cell]) -> str:
    """table.csv, table.md and table.png in `out`; the Markdown."""
    with open(out / "table.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(Cell._fields)
        writer.writerows(found)
    names = dict.fromkeys(cell.column for cell in found)
    parts = [markdown([c for c in found if c.column == name]) for name in names]
    text = "\n".join(parts)
    (out / "table.md").write_text(text, encoding="utf-8")
    save_figure(figure(found), out / "table")
    return text


def markdown(found: Sequence[Cell]) -> str:
    """One column of the table, with the ranks of the methods and Kendall's tau."""
    ranked = [cell for cell in found if not np.isnan(cell.published)]
    theirs, ours = (
        ranks([getattr(c, n) for c in ranked]) for n in ("published", "mean")
    )
    place = {id(c): (a, b) for c, a, b in zip(ranked, theirs, ours, strict=True)}
    lines = [
        f"### {found[0].column}, {found[0].rounds} rounds\n",
        "| method | judged by | published | measured | std over seeds | seeds | rank "
        "published | rank measured |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell in found:
        shown = "", "", ""
        if id(cell) in place:
            told = f"{cell.published:.2f} ± {cell.published_std:.2f}"
            shown = told, *map(str, place[id(cell)])
        spread = "" if np.isnan(cell.over_seeds) else f"{cell.over_seeds:.2f}"
        texts = (
            cell.method, cell.judged, shown[0],
            f"{cell.mean:.2f} ± {cell.over_clients:.2f}", spread, str(cell.seeds),
            *shown[1:],
        )  # fmt: skip
        lines.append(f"| {' | '.join(texts)} |")
    if len(ranked) > 2:
        tau = kendalltau([c.published for c in ranked], [c.mean for c in ranked])
        lines.append(f"\nKendall's tau of the rankings: {tau.statistic:.2f}")
    return "\n".join(lines) + "\n"


def ranks(values: Sequence[float]) -> list[int]:
    """1 for the greatest."""
    return [1 + sum(other > value for other in values) for value in values]


def figure(found: Sequence[Cell]) -> "Figure":
    """Published and measured numbers by method, a panel a column."""
    names = list(dict.fromkeys(cell.column for cell in found))
    drawn, panels = new_figure(2.6 * len(names) + 1, 4.2, len(names), sharey=True)
    shown = [cell for cell in found if not np.isnan(cell.published)]
    methods = list(dict.fromkeys(cell.method for cell in shown))[::-1]
    for axes, name in zip(panels, names, strict=True):
        own = [cell for cell in shown if cell.column == name]
        y = [methods.index(cell.method) for cell in own]
        spread = np.nan_to_num([cell.over_seeds for cell in own])
        axes.hlines(y, [c.published for c in own], [c.mean for c in own], color=GREY)
        axes.plot([c.published for c in own], y, "o", mfc="white", color=INK)
        means = [c.mean for c in own]
        axes.errorbar(means, y, xerr=spread, fmt="o", color=PALETTE[0], capsize=3)
        axes.set_title(name, fontsize=10)
        axes.set_yticks(range(len(methods)), methods)
        axes.grid(axis="x", **GRID)
    drawn.supxlabel("mean over clients: published (hollow), here (filled, ± std seeds)")
    return drawn
