"""Methods held against the best and against the baselines, client by client.

`compare` has the comparisons of a table's rows, each with its `numbers` and with p
after Holm's correction, and says which rows could not be compared.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pfljax.evaluation import significance
from pfljax.evaluation.bootstrap import interval
from pfljax.report.columns import Row
from pfljax.report.pairing import Pair, pair, unpaired
from pfljax.report.statistics import over_seeds


class Comparison(NamedTuple):
    """One method against another; it is the one with more accuracy."""

    method: str
    against: str
    pair: Pair
    rounds: tuple[int, ...]
    with_best: bool  # one of the two is the best of all
    values: dict[str, float]  # by column of `paired.COLUMNS`


def compare(rows: Sequence[Row]) -> tuple[list[Comparison], list[str]]:
    """The comparisons, those with the best first, and the refusals in words.

    A method is judged by its first row. Rows that are not ranked are no one's equals.
    """
    methods = _first_rows(rows)
    comparisons = []
    refusals = []
    for a, b in _in_pairs(methods):
        problem = unpaired(a, b)
        if problem:
            refusals.append(f"Not compared: {problem}.")
            continue
        comparison = _comparison(a, b, with_best=a is methods[0])
        if comparison is not None:
            comparisons.append(comparison)
    families: dict[tuple[bool, bool], list[Comparison]] = {}
    for comparison in comparisons:
        # The bold marks of the accuracy are of those with the best. A p of one seed's
        # clients answers another question than one of seeds.
        of_one_seed = len(comparison.pair.seeds) == 1
        family = families.setdefault((comparison.with_best, of_one_seed), [])
        family.append(comparison)
    for family in families.values():
        _correct(family)
    return comparisons, refusals


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
    rounds = tuple(a.rounds[a.seeds.index(seed)] for seed in differences.seeds)
    return Comparison(
        method=a.method,
        against=b.method,
        pair=differences,
        rounds=rounds,
        with_best=with_best,
        values=_numbers(differences),
    )


def _numbers(differences: Pair) -> dict[str, float]:
    """The columns of one comparison, before p is corrected."""
    low, high = interval(differences.counted)
    wilcoxon = float("nan")
    if len(differences.seeds) > 1:
        wilcoxon = significance.signed_rank(differences.means)
    counts = (float("nan"),) * 3
    if differences.clients:
        counts = significance.win_tie_loss(differences.counted)
    win, tie, lose = counts
    return {
        "difference": float(differences.means.mean()),
        "p_holm": differences.p,  # corrected when all are known
        "low": low,
        "high": high,
        "p": significance.paired_t(differences.means),
        "p_wilcoxon": wilcoxon,
        "p_clients": differences.p_clients,
        "win": win,
        "tie": tie,
        "lose": lose,
    }


def _correct(family: Sequence[Comparison]) -> None:
    """Corrects the p of comparisons that are read together, of seeds and of clients."""
    for name in ("p_holm", "p_clients"):
        corrected = significance.holm(np.array([c.values[name] for c in family]))
        for comparison, p in zip(family, corrected, strict=True):
            comparison.values[name] = float(p)
