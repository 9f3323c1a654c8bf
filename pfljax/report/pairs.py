"""Comparisons of pairs of methods on the same clients, data and seeds.

The best method and the baselines are compared with every other method. The p-value of
`significance.estimate` after Holm's correction decides; comparisons with the best and
the others are corrected separately. Wilcoxon's tests over the seeds, and over the
clients of these seeds, are also shown.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pfljax.evaluation import significance
from pfljax.evaluation.significance import Pair
from pfljax.report.captions import NOTES
from pfljax.report.frames import Frame, make_frame
from pfljax.report.lead import Lead, make_lead
from pfljax.report.runs import is_local, is_tuned_fedavg
from pfljax.report.seeds import Group
from pfljax.report.tables import Column, Table, format_rows, keep_known

NAMES = ("method", "against", "with_best", "same_clients")


def list_columns(lead: Lead) -> list[Column]:
    """The columns of a comparison; a difference is how much better a method is."""
    difference = "Difference" if lead.sign > 0 else "Lower by"
    if lead.is_share:
        difference += " (points)"
    return [
        Column("difference", difference, lead.scale, f"+{lead.form}"),
        Column("p_holm", "p after Holm", 1, ".3g"),
        Column("low", "95 % from", lead.scale, lead.form),
        Column("high", "to", lead.scale, lead.form),
        Column("p", "p", 1, ".3g"),
        Column("p_wilcoxon", "p (Wilcoxon, seeds)", 1, ".3g"),
        Column("p_clients", "p (Wilcoxon, clients)", 1, ".3g"),
        Column("win", "Clients win", 1, ".0f"),
        Column("tie", "tie", 1, ".0f"),
        Column("lose", "lose", 1, ".0f"),
        Column("seeds", "Seeds", 1, ".0f"),
        Column("needed", "Seeds to decide", 1, ".0f"),
    ]


KEYS = (*NAMES, *(column.key for column in list_columns(make_lead("accuracy"))))


class Scores(NamedTuple):
    """How good one method is under each seed: sign * value of the metric."""

    method: str
    means: Mapping[int, float]  # over clients, by seed
    clients: Mapping[int, np.ndarray] = {}  # f[C] by seed, where they are known
    data: Mapping[int, str] = {}  # SHA-256 of the data and who holds it, by seed
    is_baseline: bool = False


def make_scores(group: Group, means: Mapping[int, float], lead: Lead) -> Scores:
    """The scores of a group of runs; `means` of the metric are by seed."""
    name = f"personal/test/{lead.name}"
    by_seed = {run.experiment.seed: run for run in group.runs}
    return Scores(
        method=group.label,
        means={seed: lead.sign * mean for seed, mean in means.items()},
        clients={s: lead.sign * run.clients[name][-1] for s, run in by_seed.items()},
        data={seed: run.partition["sha256"] for seed, run in by_seed.items()},
        is_baseline=is_local(group.experiment) or is_tuned_fedavg(group.experiment),
    )


def compare(methods: Sequence[Scores]) -> tuple[Frame, list[str]]:
    """(a row for each comparison, the better method first; refusals).

    A method without a mean that is finite is left out.
    """
    methods = [method for method in methods if method.means]
    methods.sort(key=lambda m: -np.mean(list(m.means.values())))
    with_best, others, refusals = [], [], []
    for a, b in itertools.combinations(methods, 2):
        is_with_best = a is methods[0]
        if not (is_with_best or a.is_baseline or b.is_baseline):
            continue
        problem = explain_mismatch(a, b)
        if problem:
            refusals.append(f"Not compared: {problem}.")
        else:
            (with_best if is_with_best else others).append((a, b))
    rows = _compare_family(with_best, True) + _compare_family(others, False)
    return make_frame(rows, KEYS), refusals


def explain_mismatch(a: Scores, b: Scores) -> str:
    """Why two methods cannot be compared, and what to do; empty if they can."""
    shared = sorted(a.means.keys() & b.means.keys())
    if not shared:
        return (
            f"{a.method} has seeds {', '.join(map(str, a.means))} and {b.method} has "
            f"{', '.join(map(str, b.means))}; run both with the same seeds"
        )
    for seed in shared:
        if a.data.get(seed) != b.data.get(seed):
            return (
                f"{a.method} and {b.method} have other clients or data under seed "
                f"{seed}; run both on one data set, partition and seed"
            )
    return ""


def pair(a: Scores, b: Scores) -> Pair:
    """The differences a - b under the seeds that both have."""
    seeds = sorted(a.means.keys() & b.means.keys())
    means = np.array([a.means[s] - b.means[s] for s in seeds])
    known = all(s in a.clients and s in b.clients for s in seeds)
    clients = []
    for seed in seeds if known else ():
        difference = a.clients[seed].astype(float) - b.clients[seed]
        # A client without test examples has NaN.
        clients.append(difference[np.isfinite(difference)])
    same = known and len({a.data[s] for s in seeds}) == 1
    return Pair(means, tuple(clients), same)


def against(one: Scores, others: Sequence[Scores]) -> Frame:
    """A row for the difference of each of the others from one, corrected together."""
    rows = _compare_family([(other, one) for other in others], False)
    return make_frame(rows, KEYS)


def _compare_family(
    comparisons: Sequence[tuple[Scores, Scores]], with_best: bool
) -> list[dict[str, Any]]:
    """The rows of comparisons that are read, and corrected, together."""
    differences = [pair(a, b) for a, b in comparisons]
    estimates = significance.estimate(differences)
    corrected = significance.holm(np.array([e.p for e in estimates]))
    rows = []
    for (a, b), difference, estimate, p_holm in zip(
        comparisons, differences, estimates, corrected, strict=True
    ):
        needed = significance.seeds_needed(estimate, len(comparisons))
        rows.append(
            {"method": a.method, "against": b.method, "with_best": with_best}
            | {"seeds": len(difference.means)}
            | estimate._asdict()
            | {"p_holm": p_holm, "needed": float(needed or "nan")}
            | _test_ranks(difference)
        )
    return rows


def _test_ranks(difference: Pair) -> dict[str, Any]:
    """Wilcoxon's tests, and how many clients win, tie and lose."""
    row: dict[str, Any] = {"same_clients": difference.same_clients}
    if len(difference.means) > 1:
        row["p_wilcoxon"] = significance.signed_rank(difference.means)
    if difference.clients:
        counted = np.concatenate(difference.clients)
        # A client that all seeds have counts once.
        is_same = difference.same_clients
        units = np.mean(difference.clients, axis=0) if is_same else counted
        row["p_clients"] = significance.signed_rank(units)
        counts = significance.win_tie_loss(counted)
        row |= dict(zip(("win", "tie", "lose"), counts, strict=True))
    return row


def pair_table(comparisons: Frame, lead: Lead) -> Table:
    """The comparisons as text."""
    columns = keep_known(comparisons, list_columns(lead))
    names = comparisons.method + " against " + comparisons.against
    cells = format_rows(comparisons, columns)
    rows = [[name, *texts] for name, texts in zip(names, cells, strict=True)]
    header = ["Comparison", *(column.title for column in columns)]
    title = "Differences in pairs"
    return Table(title, header, rows, note=lead.fill(NOTES[title]))
