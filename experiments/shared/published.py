"""Published numbers beside measured ones: the tables and figures of replications."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import kendalltau
from shared.participation import Part

from pfljax.report.style import GREY, GRID, INK, PALETTE, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ORACLE = ("mixture", "oracle")
GREATEST = ("mixture", "superfed-code")  # see superfed_kdd22/greatest.py
SHOWN = (("personal", ""), ("server", ""), ORACLE)
PERCENT = ("accuracy", "top5")
SMALLER_IS_BETTER = ("loss", "ece", "mce", "ece_batchwise", "mce_batchwise")


class Cell(NamedTuple):
    """A measured number beside the published one, in the table's unit."""

    column: str
    metric: str
    method: str
    judged: str  # "personal", "server", "mixture oracle", "mixture superfed-code"
    published: float  # mean over clients, NaN where none is
    published_std: float  # population std over clients
    mean: float  # over clients, mean over seeds
    over_clients: float  # population std, mean over seeds
    over_seeds: float  # sample std of the mean, NaN for one seed
    seeds: int
    rounds: int
    diverged: int  # of the seeds: the number, or the same model's loss, is not finite
    clients: float = np.nan  # this and the next two as in `participation.Part`
    took_part: float = np.nan
    mixed: float = np.nan
    data: str = ""  # the data set that was run, with its options
    published_on: str = ""  # of the published number's


def published(path: Path, wanted: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """Published (mean, std over clients) by method; the first of several sources."""
    found: dict[str, tuple[float, float]] = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if all(row[key] == value for key, value in wanted.items()):
                std = float(row["std"] or "nan")
                found.setdefault(row["method"], (float(row["mean"]), std))
    return found


def cells(
    rows: Sequence[Mapping[str, Any]],
    column: str,
    method: str,
    metric: str,
    judged: tuple[str, str],
    theirs: tuple[float, float],
) -> list[Cell]:
    """What a method gave after the last round, on test rows, of a sweep's tidy `rows`.

    First the model `judged` (model, lambda) that stands behind the published number
    `theirs`, then the method's other models where they differ.
    """
    last = max(row["round"] for row in rows)
    rows = [row for row in rows if row["round"] == last and row["split"] == "test"]
    found: list[Cell] = []
    for which in dict.fromkeys((judged, *SHOWN)):
        model = [r for r in rows if (r["judged"], r["lambda"]) == which]
        own = [row for row in model if row["metric"] == metric]
        if not own:
            continue
        mean, std = theirs if which == judged else (np.nan, np.nan)
        cell = Cell(
            column,
            metric,
            method,
            judged=" ".join(filter(None, which)),
            published=mean,
            published_std=std,
            **_over_seeds(own, 100 if metric in PERCENT else 1),
            seeds=len(own),
            rounds=last,
            diverged=_diverged(model, metric),
        )
        if not any(_same(cell, other) for other in found):
            found.append(cell)
    return found


def _over_seeds(rows: Sequence[Mapping[str, Any]], scale: float) -> dict[str, float]:
    """The three numbers of a Cell that are measured."""
    means, stds = scale * np.array([[row["mean"], row["std"]] for row in rows], float).T
    return {
        "mean": means.mean(),
        "over_clients": stds.mean(),
        "over_seeds": float(std_over_seeds(means)),
    }


def std_over_seeds(values: np.ndarray) -> np.ndarray:
    """Sample std over the leading axis; NaN for one seed."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    return values.std(0, ddof=1)


def _diverged(model: Sequence[Mapping[str, Any]], metric: str) -> int:
    """Seeds without a finite number. A model of NaN has an accuracy, 0, but no loss."""
    asked = [row for row in model if row["metric"] in (metric, "loss")]
    return len({row["seed"] for row in asked if np.isnan(row["mean"])})


def _same(a: Cell, b: Cell) -> bool:
    """Whether two models gave the same numbers: nothing is personal."""
    return (a.mean, a.over_clients) == (b.mean, b.over_clients)


def write(out: Path, found: Sequence[Cell]) -> str:
    """table.csv, table.md and table.png in `out`; the Markdown."""
    with open(out / "table.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(Cell._fields)
        writer.writerows(found)
    tables = dict.fromkeys((cell.column, cell.metric) for cell in found)
    text = "\n".join(
        markdown([c for c in found if (c.column, c.metric) == table])
        for table in tables
    )
    (out / "table.md").write_text(text, encoding="utf-8")
    for metric in dict.fromkeys(cell.metric for cell in found):
        drawn = figure([cell for cell in found if cell.metric == metric])
        save_figure(drawn, out / metric)
    return text


def markdown(found: Sequence[Cell]) -> str:
    """One column of a table, with the ranks of the methods and Kendall's tau."""
    sign = -1 if found[0].metric in SMALLER_IS_BETTER else 1
    ranked = [cell for cell in found if not np.isnan(cell.published)]
    theirs = [sign * cell.published for cell in ranked]
    ours = [sign * cell.mean for cell in ranked]
    both = zip(ranks(theirs), ranks(ours), strict=True)
    place = dict(zip(ranked, both, strict=True))
    lines = [
        f"### {found[0].column}, {found[0].metric}, {_run(found)}\n",
        "| method | judged by | published | measured | std over seeds | seeds | rank "
        "published, measured | took part |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(cell, place.get(cell)) for cell in found]
    if len(ranked) > 2:
        lines.append(f"\nKendall's tau of the rankings: {tau(theirs, ours):.2f}")
    lost = [cell for cell in found if cell.diverged]
    if lost:
        told = (f"{c.method}, {c.judged} ({c.diverged} of {c.seeds})" for c in lost)
        lines.append(f"\nSeeds that did not end finite: {'; '.join(told)}")
    comparable = [cell for cell in ranked if cell.data == cell.published_on]
    for kind, spread in (
        ("over seeds", "over_seeds"),
        ("over clients", "over_clients"),
    ):
        apart = _apart(comparable, spread)
        if apart:
            lines.append(f"\nMore than two std {kind} from the published: {apart}")
    return "\n".join(lines) + "\n"


def _apart(ranked: Sequence[Cell], spread: str) -> str:
    """Methods that are more than two standard deviations away, and by how much."""
    far = [
        f"{cell.method} ({cell.mean - cell.published:+.2f})"
        for cell in ranked
        if abs(cell.mean - cell.published) > 2 * getattr(cell, spread)
    ]
    return ", ".join(far)


def _run(found: Sequence[Cell]) -> str:
    """Rounds and data of these cells, and those of the published numbers if other."""
    rounds = _and(sorted({cell.rounds for cell in found}))
    data, theirs = (
        _and(dict.fromkeys(filter(None, names)))
        for names in zip(*((c.data, c.published_on) for c in found), strict=True)
    )
    where = f" of {data}" * bool(data)
    other = f" (published: of {theirs})" * (data != theirs)
    return f"{rounds} rounds{where}{other}"


def _and(values: Iterable[Any]) -> str:
    return " and ".join(map(str, values))


def _line(cell: Cell, place: tuple[int, int] | None) -> str:
    theirs = f"{cell.published:.2f} ± {cell.published_std:.2f}" if place else ""
    ours = f"{cell.mean:.2f} ± {cell.over_clients:.2f}"
    spread = decimals(cell.over_seeds)
    both = ", ".join(map(str, place)) if place else ""
    texts = (cell.method, cell.judged, theirs, ours, spread, str(cell.seeds), both)
    part = Part(cell.clients, cell.took_part, cell.mixed)
    return f"| {' | '.join((*texts, part.told()))} |"


def decimals(value: float) -> str:
    """Two of them; nothing where there is no number, as of a std of one seed."""
    return "" if np.isnan(value) else f"{value:.2f}"


def tau(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """Kendall's tau of the two rankings; greater is better, NaN is last."""
    found: Any = kendalltau(ranks(theirs), ranks(ours))
    return float(found.statistic)


def ranks(values: Sequence[float]) -> list[int]:
    """1 for the greatest; NaN, of a run that diverged, is last."""
    values = [-np.inf if np.isnan(value) else value for value in values]
    return [1 + sum(other > value for other in values) for value in values]


def figure(found: Sequence[Cell]) -> "Figure":
    """Published and measured numbers of one metric by method, a panel a column."""
    names = list(dict.fromkeys(cell.column for cell in found))
    shown = [cell for cell in found if not np.isnan(cell.published)]
    methods = list(dict.fromkeys(cell.method for cell in shown))[::-1]
    height = 1.2 + 0.3 * len(methods)
    width = 2.1 + 2.1 * len(names)  # also of one panel: the text below must fit
    drawn, panels = new_figure(width, height, len(names), sharex=True, sharey=True)
    for axes, name in zip(panels, names, strict=True):
        own = [cell for cell in shown if cell.column == name]
        y = [methods.index(cell.method) for cell in own]
        theirs, ours = [c.published for c in own], [c.mean for c in own]
        axes.hlines(y, theirs, ours, color=GREY, linewidth=0.8)
        axes.plot(theirs, y, "o", markerfacecolor="white", color=INK)
        spread = np.nan_to_num([cell.over_seeds for cell in own])
        axes.errorbar(ours, y, xerr=spread, fmt="o", color=PALETTE[0], capsize=3)
        axes.set_title(name, fontsize=10)
        axes.set_yticks(range(len(methods)), methods)
        axes.set_ylim(-0.5, len(methods) - 0.5)
        axes.grid(axis="x", **GRID)
    unit = " (%)" if found[0].metric in PERCENT else ""
    how = "published hollow, measured filled, ± std over seeds"
    text = f"{found[0].metric}{unit}, {_run(found)}\n{how}"
    drawn.supxlabel(text, fontsize=9)
    return drawn
