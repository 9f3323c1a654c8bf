"""Which method is better: each against the best and the baselines, client by client."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pfljax.evaluation import significance
from pfljax.report.columns import Column, Row, Table
from pfljax.report.formats import csv_text
from pfljax.report.pairing import Pair, pair, unpaired
from pfljax.report.statistics import over_seeds

NAME = "paired"
COLUMNS = (
    Column("difference", "Difference (points)", scale=100, digits=2, better=0),
    Column("low", "95 % from", scale=100, digits=2, better=0),
    Column("high", "to", scale=100, digits=2, better=0),
    Column("p", "p (t, seeds)", scale=1, digits=4, better=0, is_p=True),
    Column("p_holm", "p after Holm", scale=1, digits=4, better=0, is_p=True),
    Column("p_wilcoxon", "p (Wilcoxon, seeds)", scale=1, digits=4, better=0, is_p=True),
    Column("p_clients", "p (clients, Holm)", scale=1, digits=4, better=0, is_p=True),
    Column("gain", "Clients that gain", scale=1, digits=0, better=0),
    Column("same", "as before", scale=1, digits=0, better=0),
    Column("lose", "that lose", scale=1, digits=0, better=0),
)
WHAT = (
    "Which is better at the last round. Test accuracy of the same clients under the "
    "same seeds, in pairs: the best and the baselines (local training, FedAvg with "
    "fine-tuning) with each other method, the better one first. The interval is the "
    "hierarchical bootstrap's, of seeds and of clients within them, with the width of "
    "Student's t over seeds, and of one comparison alone. "
)
SEEDS = (
    "Would another seed say the same? That is asked of the seeds' means: by Student's "
    "t in pairs, whose p after Holm decides, and by Wilcoxon's signed ranks, which of "
    "n seeds give no p below 2/2^n ({least}). "
)
ONE_SEED = (
    "Of one seed nothing can be said of another: p after Holm is that of its clients. "
)
CLIENTS = (
    "Do these clients gain? That is asked within these seeds: p (clients, Holm) is of "
    "the signed ranks of clients, in clusters by client where all seeds have the same "
    "ones, and is no answer to the first question. Counts are over all seeds. "
)
NO_CLIENTS = "Clients are not known: the seeds alone are compared. "
FAMILIES = (
    "Holm's method corrects over the rows with the best, and over the other rows. A p "
    "is shown as .0001 at least."
)
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Comparison(NamedTuple):
    """One method against another; it is the one with more accuracy."""

    method: str
    against: str
    pair: Pair
    rounds: tuple[int, ...]
    with_best: bool  # one of the two is the best of all
    values: dict[str, float]  # the columns


class Paired(NamedTuple):
    """The comparisons of a table."""

    table: Table
    comparisons: tuple[Comparison, ...]
    lines: tuple[str, ...]  # each in words


def paired(tables: Sequence[Table]) -> Paired:
    """Each method of the tables against the best and the baselines, on the accuracy.

    A method is judged by its first row. Rows that are not ranked are no one's equals.
    """
    rows = _first_rows([row for table in tables for row in table.rows])
    compared = []
    refused = []
    for a, b in _in_pairs(rows):
        with_best = a is rows[0]
        problem = unpaired(a, b)
        if problem:
            refused.append(f"Not compared: {problem}.")
            continue
        comparison = _comparison(a, b, with_best)
        if comparison is not None:
            compared.append(comparison)
    # Two families: the bold marks of the accuracy are of the first.
    _correct([c for c in compared if c.with_best])
    _correct([c for c in compared if not c.with_best])
    lines = [*map(in_words, compared), *refused]
    return Paired(_table(compared), tuple(compared), tuple(lines))


def _correct(family: Sequence[Comparison]) -> None:
    """Corrects the p of comparisons that are read together, of seeds and of clients."""
    for name in ("p_holm", "p_clients"):
        corrected = significance.holm(np.array([c.values[name] for c in family]))
        for comparison, p in zip(family, corrected, strict=True):
            comparison.values[name] = float(p)


def in_words(comparison: Comparison) -> str:
    """Which of the two is ahead, by how much, and how sure that is."""
    a, b, values = comparison.method, comparison.against, comparison.values
    points = f"{100 * values['difference']:.1f} points"
    if np.isfinite(values["low"]):
        # z: an end that reads 0.0 has no sign.
        points += f" [{100 * values['low']:z.1f}, {100 * values['high']:z.1f}]"
    n = len(comparison.pair.seeds)
    seeds = f"{NUMBERS[n] if n < len(NUMBERS) else n} seed{'s' * (n > 1)}"
    p = values["p_holm"]
    if np.isnan(p):
        return f"{a} and {b} are {points} apart, which {seeds} cannot test."
    of = f"p {p_text(p)}, {seeds}"
    if n == 1:
        of = f"p {p_text(p)} over the clients of {seeds}"
    of += _clients_in_words(values)
    if p < significance.LEVEL:
        return f"{a} is ahead of {b} by {points}, {of}."
    return f"{a} cannot be told from {b}: {points}, {of}."


def _clients_in_words(values: Mapping[str, float]) -> str:
    """How many clients gain and lose; nothing where they are not known."""
    if np.isnan(values["gain"]):
        return ""
    gain, same, lose = (int(values[key]) for key in ("gain", "same", "lose"))
    return f"; of {gain + same + lose} clients {gain} gain and {lose} lose"


def p_text(p: float) -> str:
    """A p of tests, in as many digits as matter: "= .004", "below .001"."""
    if p < 0.001:
        return "below .001"
    text = f"{p:.3f}" if p < 0.1 else f"{p:.2f}"
    return f"= {text.removeprefix('0')}"


def csv_paired(result: Paired) -> str:
    """Raw numbers, one line a comparison, with its words."""
    keys = [column.key for column in COLUMNS]
    lines: list[list] = [["method", "against", "n", "seeds", *keys, "words"]]
    for comparison, words in zip(result.comparisons, result.lines, strict=False):
        seeds = " ".join(map(str, comparison.pair.seeds))
        line: list = [comparison.method, comparison.against]
        line += [len(comparison.pair.seeds), seeds]
        line += [comparison.values[key] for key in keys]
        lines.append([*line, words])
    return csv_text(lines)


def _first_rows(rows: Sequence[Row]) -> list[Row]:
    """The first ranked row of each method that has an accuracy, from the best on."""
    first: dict[str, Row] = {}
    for row in rows:
        if row.ranked and not np.isnan(row.values["accuracy"]).all():
            first.setdefault(row.method, row)
    return sorted(first.values(), key=lambda row: -_accuracy(row))


def _accuracy(row: Row) -> float:
    return over_seeds(row.values["accuracy"])[0]


def _in_pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """The best and the baselines with each other row, once each, the better first."""
    pairs = []
    for i, a in enumerate(rows):
        for b in rows[i + 1 :]:
            if i == 0 or a.baseline or b.baseline:
                pairs.append((a, b))
    return pairs


def _comparison(a: Row, b: Row, with_best: bool) -> Comparison | None:
    """The two compared; None where no seed has both accuracies."""
    differences = pair(a, b)
    if not differences.seeds:
        return None
    if differences.means.mean() < 0:  # on the seeds that both have
        a, b = b, a
        differences = pair(a, b)
    low, high = significance.interval(differences.counted)
    wilcoxon = significance.signed_rank(differences.means)
    several = len(differences.seeds) > 1
    counts = (float("nan"),) * 3
    if differences.clients:
        counts = significance.win_tie_loss(differences.counted)
    values = {
        "difference": float(differences.means.mean()),
        "low": low,
        "high": high,
        "p": significance.paired_t(differences.means),
        "p_holm": differences.p,  # corrected when all are known
        "p_wilcoxon": wilcoxon if several else float("nan"),
        "p_clients": differences.p_clients,
    }
    values |= dict(zip(("gain", "same", "lose"), counts, strict=True))
    rounds = tuple(a.rounds[a.seeds.index(seed)] for seed in differences.seeds)
    return Comparison(
        method=a.method,
        against=b.method,
        pair=differences,
        rounds=rounds,
        with_best=with_best,
        values=values,
    )


def _table(compared: Sequence[Comparison]) -> Table:
    """The comparisons as a table, without columns that no row fills."""
    rows = []
    for comparison in compared:
        n = len(comparison.pair.seeds)
        values = {
            column.key: np.full(n, comparison.values[column.key]) for column in COLUMNS
        }
        row = Row(
            method=comparison.method,
            judged=comparison.against,
            ranked=True,
            seeds=comparison.pair.seeds,
            rounds=comparison.rounds,
            values=values,
        )
        rows.append(row)
    columns = []
    for column in COLUMNS:
        if not all(np.isnan(row.values[column.key]).all() for row in rows):
            columns.append(column)
    return Table(
        name=NAME,
        caption=_caption(compared),
        columns=tuple(columns),
        rows=tuple(rows),
        names=("Method", "Against"),
    )


def _caption(compared: Sequence[Comparison]) -> str:
    """What is compared, and which test answers what."""
    counts = sorted({len(comparison.pair.seeds) for comparison in compared})
    least = ", ".join(f"{significance.least_p(n):.2g} of {n}" for n in counts if n > 1)
    asked = SEEDS.format(least=least) if least else ""
    if 1 in counts:
        asked += ONE_SEED
    is_known = any(comparison.pair.clients for comparison in compared)
    return WHAT + asked + (CLIENTS if is_known else NO_CLIENTS) + FAMILIES
