"""Tables and figures of replications, with published and measured numbers."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import kendalltau, rankdata
from shared.participation import Part

from pfljax.report.style import GREY, GRID, INK, PALETTE, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ORACLE = ("mixture", "oracle")
GREATEST = ("mixture", "superfed-code")  # see superfed_kdd22/greatest.py
SHOWN = (("personal", ""), ("server", ""), ORACLE)
PERCENT = ("accuracy", "top5")
SMALLER_IS_BETTER = ("loss", "ece", "mce", "ece_batchwise", "mce_batchwise")


def std_over_seeds(values: np.ndarray) -> np.ndarray:
    """Sample std over the leading axis of f[n, ...]; NaN for one seed."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    return values.std(axis=0, ddof=1)


class Cell(NamedTuple):
    """A measured number beside the published one, in the table's unit."""

    column: str
    metric: str
    method: str
    model: str  # "personal", "server", "mixture oracle", "mixture superfed-code"
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
    numbers: dict[str, tuple[float, float]] = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if any(row[key] != value for key, value in wanted.items()):
                continue
            mean = float(row["mean"])
            std = float(row["std"] or "nan")
            # Several sources give some numbers: the first in the file counts.
            numbers.setdefault(row["method"], (mean, std))
    return numbers


def cells(
    rows: Sequence[Mapping[str, Any]],
    column: str,
    method: str,
    metric: str,
    reported: tuple[str, str],
    theirs: tuple[float, float],
) -> list[Cell]:
    """The results of a method after the last round, on test examples, in tidy `rows`.

    The first cell is that of `reported` (model, lambda), which the published number
    `theirs` is about. The others are the method's other models, if they differ.
    """
    last = max(row["round"] for row in rows)
    rows = [row for row in rows if row["round"] == last and row["split"] == "test"]
    result: list[Cell] = []
    for which in dict.fromkeys((reported, *SHOWN)):
        model = [row for row in rows if (row["evaluated"], row["lambda"]) == which]
        by_seed = [row for row in model if row["metric"] == metric]
        if not by_seed:
            continue
        mean, std = theirs if which == reported else (np.nan, np.nan)
        cell = Cell(
            column=column,
            metric=metric,
            method=method,
            model=" ".join(filter(None, which)),
            published=mean,
            published_std=std,
            **_over_seeds(by_seed, 100 if metric in PERCENT else 1),
            seeds=len(by_seed),
            rounds=last,
            diverged=_diverged(model, metric),
        )
        # A method without personal models gives the server's twice.
        if not any(_same(cell, other) for other in result):
            result.append(cell)
    return result


def _over_seeds(rows: Sequence[Mapping[str, Any]], scale: float) -> dict[str, float]:
    """The three numbers of a Cell that are measured."""
    table = np.array([[row["mean"], row["std"]] for row in rows], float)
    means, stds = scale * table.T
    return {
        "mean": means.mean(),
        "over_clients": stds.mean(),
        "over_seeds": float(std_over_seeds(means)),
    }


def _diverged(model: Sequence[Mapping[str, Any]], metric: str) -> int:
    """Seeds without a finite number. A model of NaN has an accuracy, 0, but no loss."""
    decisive = [row for row in model if row["metric"] in (metric, "loss")]
    return len({row["seed"] for row in decisive if np.isnan(row["mean"])})


def _same(a: Cell, b: Cell) -> bool:
    """Whether two models gave the same numbers: nothing is personal."""
    return (a.mean, a.over_clients) == (b.mean, b.over_clients)


def write(out: Path, cells: Sequence[Cell]) -> str:
    """table.csv, table.md and table.png in `out`; the Markdown."""
    with open(out / "table.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(Cell._fields)
        writer.writerows(cells)
    tables: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        tables.setdefault((cell.column, cell.metric), []).append(cell)
    text = "\n".join(map(markdown, tables.values()))
    (out / "table.md").write_text(text, encoding="utf-8")
    for metric in dict.fromkeys(cell.metric for cell in cells):
        drawn = figure([cell for cell in cells if cell.metric == metric])
        save_figure(drawn, out / metric)
    return text


def markdown(cells: Sequence[Cell]) -> str:
    """One column of a table, with the ranks of the methods and Kendall's tau."""
    sign = -1 if cells[0].metric in SMALLER_IS_BETTER else 1
    compared = [cell for cell in cells if not np.isnan(cell.published)]
    theirs = [sign * cell.published for cell in compared]
    ours = [sign * cell.mean for cell in compared]
    both_ranks = zip(ranks(theirs), ranks(ours), strict=True)
    rank_of = dict(zip(compared, both_ranks, strict=True))
    lines = [
        f"### {cells[0].column}, {cells[0].metric}, {_run(cells)}\n",
        "| method | evaluated with | published | measured | std over seeds | seeds "
        "| rank published, measured | took part |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(cell, rank_of.get(cell)) for cell in cells]
    # Of two methods tau is 1 or -1, which says nothing.
    if len(compared) > 2:
        lines.append(f"\nKendall's tau of the rankings: {tau(theirs, ours):.2f}")
    return "\n".join([*lines, *_notes(cells, compared)]) + "\n"


def _notes(cells: Sequence[Cell], compared: Sequence[Cell]) -> list[str]:
    """What diverged, and what is far from the published numbers."""
    notes = []
    diverged = [
        f"{cell.method}, {cell.model} ({cell.diverged} of {cell.seeds})"
        for cell in cells
        if cell.diverged
    ]
    if diverged:
        notes.append(f"\nSeeds that did not end finite: {'; '.join(diverged)}")
    # Numbers on other data may differ as they like.
    comparable = [cell for cell in compared if cell.data == cell.published_on]
    for spread in ("over_seeds", "over_clients"):
        if apart := _apart(comparable, spread):
            kind = spread.replace("_", " ")
            notes.append(f"\nMore than two std {kind} from the published: {apart}")
    return notes


def _apart(ranked: Sequence[Cell], spread: str) -> str:
    """Methods that are more than two standard deviations away, and by how much."""
    far = [
        f"{cell.method} ({cell.mean - cell.published:+.2f})"
        for cell in ranked
        if abs(cell.mean - cell.published) > 2 * getattr(cell, spread)
    ]
    return ", ".join(far)


def _run(cells: Sequence[Cell]) -> str:
    """Rounds and data of these cells, and those of the published numbers if other."""
    rounds = _and(sorted({cell.rounds for cell in cells}))
    ours = _names(cell.data for cell in cells)
    theirs = _names(cell.published_on for cell in cells)
    data = f" of {ours}" if ours else ""
    other = f" (published: of {theirs})" if ours != theirs else ""
    return f"{rounds} rounds{data}{other}"


def _names(values: Iterable[str]) -> str:
    """Each once, in their order; nothing where a name is empty."""
    return _and(dict.fromkeys(filter(None, values)))


def _and(values: Iterable[Any]) -> str:
    return " and ".join(map(str, values))


def _line(cell: Cell, both_ranks: tuple[int, int] | None) -> str:
    theirs = ""
    if both_ranks:
        theirs = f"{cell.published:.2f} ± {cell.published_std:.2f}"
    part = Part(
        clients=cell.clients,
        took_part=cell.took_part,
        mixed=cell.mixed,
    )
    texts = (
        cell.method,
        cell.model,
        theirs,
        f"{cell.mean:.2f} ± {cell.over_clients:.2f}",
        decimals(cell.over_seeds),
        str(cell.seeds),
        ", ".join(map(str, both_ranks or ())),
        part.sentence(),
    )
    return f"| {' | '.join(texts)} |"


def with_std(mean: float, std: float, digits: int = 2) -> str:
    """A mean and its std over seeds; without that of one seed, which has none."""
    text = f"{mean:.{digits}f}"
    return text if np.isnan(std) else f"{text} ± {std:.{digits}f}"


def decimals(value: float) -> str:
    """Two of them; nothing where there is no number, as of a std of one seed."""
    return "" if np.isnan(value) else f"{value:.2f}"


def tau(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """Kendall's tau of the two rankings; greater is better, NaN is last."""
    result: Any = kendalltau(ranks(theirs), ranks(ours))
    return float(result.statistic)


def ranks(values: Sequence[float]) -> list[int]:
    """1 for the greatest; NaN, of a run that diverged, is last.

    Equal values share the better rank.
    """
    worst_if_nan = np.where(np.isnan(values), -np.inf, values)
    return rankdata(-worst_if_nan, method="min").astype(int).tolist()


def figure(cells: Sequence[Cell]) -> "Figure":
    """Published and measured numbers of one metric by method, a panel a column."""
    names = list(dict.fromkeys(cell.column for cell in cells))
    shown = [cell for cell in cells if not np.isnan(cell.published)]
    # The first method on top: y grows upwards.
    methods = list(dict.fromkeys(cell.method for cell in shown))[::-1]
    height = 1.2 + 0.3 * len(methods)
    width = 2.1 + 2.1 * len(names)  # also of one panel: the text below must fit
    drawn, panels = new_figure(width, height, len(names), sharex=True, sharey=True)
    for axes, name in zip(panels, names, strict=True):
        _draw_column(axes, [cell for cell in shown if cell.column == name], methods)
        axes.set_title(name, fontsize=10)
    metric = cells[0].metric
    unit = " (%)" if metric in PERCENT else ""
    legend = "published hollow, measured filled, ± std over seeds"
    drawn.supxlabel(f"{metric}{unit}, {_run(cells)}\n{legend}", fontsize=9)
    return drawn


def _draw_column(axes: Any, cells: Sequence[Cell], methods: Sequence[str]) -> None:
    y = [methods.index(cell.method) for cell in cells]
    theirs = [cell.published for cell in cells]
    ours = [cell.mean for cell in cells]
    # The std of one seed is NaN: no bar.
    spread = np.nan_to_num([cell.over_seeds for cell in cells])
    axes.hlines(y, theirs, ours, color=GREY, linewidth=0.8)
    axes.plot(theirs, y, "o", markerfacecolor="white", color=INK)
    axes.errorbar(ours, y, xerr=spread, fmt="o", color=PALETTE[0], capsize=3)
    axes.set_yticks(range(len(methods)), methods)
    axes.set_ylim(-0.5, len(methods) - 0.5)
    axes.grid(axis="x", **GRID)
