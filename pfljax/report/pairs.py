"""Which method is better: differences on the same clients, data and seeds.

The best method and the baselines are compared with each other method. The p that
decides is that of `significance.estimate` after Holm's correction, once over the
comparisons with the best and once over the others. Wilcoxon's test over the seeds, and
over the clients of these seeds, stand beside it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pfljax.evaluation import significance
from pfljax.evaluation.significance import Estimate, Pair
from pfljax.report.frames import Frame, make_frame
from pfljax.report.groups import Group
from pfljax.report.runs import is_local, is_tuned_fedavg, main_clients

COLUMNS = (
    "method",
    "against",
    "seeds",
    "difference",
    "low",
    "high",
    "p_holm",
    "p",
    "p_wilcoxon",
    "p_clients",
    "win",
    "tie",
    "lose",
    "with_best",
    "needed",  # seeds that would find this difference; NaN for more than 100
    "same_clients",
)


class Scores(NamedTuple):
    """The accuracy of one method under each seed."""

    method: str
    means: Mapping[int, float]  # over clients, by seed
    clients: Mapping[int, np.ndarray] = {}  # f[C] by seed, where they are known
    data: Mapping[int, str] = {}  # SHA-256 of the data and who holds it, by seed
    is_baseline: bool = False

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return float(np.mean(list(self.means.values())))


def make_scores(group: Group, means: Mapping[int, float]) -> Scores:
    """The scores of a group of runs; `means` are by seed."""
    clients = {run.seed: main_clients(run) for run in group.runs}
    return Scores(
        method=group.label,
        means=means,
        clients={s: values for s, values in clients.items() if values is not None},
        data={run.seed: run.partition["sha256"] for run in group.runs},
        is_baseline=is_local(group.config) or is_tuned_fedavg(group.config),
    )


def compare(methods: Sequence[Scores]) -> tuple[Frame, list[str]]:
    """(a row for each comparison, the method with the greater mean first; refusals)."""
    methods = [m for m in methods if np.isfinite(m.mean)]
    methods.sort(key=lambda m: -m.mean)
    comparisons = []
    refusals = []
    for i, a in enumerate(methods):
        for b in methods[i + 1 :]:
            if i and not (a.is_baseline or b.is_baseline):
                continue
            problem = mismatch(a, b)
            if problem:
                refusals.append(f"Not compared: {problem}.")
            else:
                comparisons.append((a, b, i == 0))
    rows = []
    for with_best in (True, False):
        family = [
            (a, b) for a, b, is_with_best in comparisons if is_with_best == with_best
        ]
        rows += [row | {"with_best": with_best} for row in _compare_family(family)]
    return make_frame(rows, COLUMNS), refusals


def mismatch(a: Scores, b: Scores) -> str:
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


def _compare_family(
    comparisons: Sequence[tuple[Scores, Scores]],
) -> list[dict[str, Any]]:
    """The rows of comparisons that are read, and corrected, together."""
    differences = [pair(a, b) for a, b in comparisons]
    estimates = significance.estimate(differences)
    corrected = significance.holm(np.array([e.p for e in estimates]))
    rows = []
    for (a, b), d, e, p in zip(
        comparisons, differences, estimates, corrected, strict=True
    ):
        head = {"method": a.method, "against": b.method, "seeds": len(d.means)}
        rows.append(head | _numbers(d, e, p, len(comparisons)))
    return rows


def _numbers(
    differences: Pair, estimate: Estimate, p_holm: float, comparisons: int
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "difference": estimate.difference,
        "low": estimate.low,
        "high": estimate.high,
        "p_holm": float(p_holm),
        "p": estimate.p,
        "needed": float(significance.seeds_needed(estimate, comparisons) or "nan"),
        "same_clients": differences.same_clients,
    }
    if len(differences.means) > 1:
        row["p_wilcoxon"] = significance.signed_rank(differences.means)
    if differences.clients:
        clients = differences.clients
        counted = np.concatenate(clients)
        # A client that all seeds have counts once.
        units = np.mean(clients, axis=0) if differences.same_clients else counted
        row["p_clients"] = significance.signed_rank(units)
        counts = significance.win_tie_loss(counted)
        row |= dict(zip(("win", "tie", "lose"), counts, strict=True))
    return row
