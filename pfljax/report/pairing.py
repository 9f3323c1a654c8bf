"""Rows of a table in pairs: the same seeds, and in these the same clients and rows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pfljax.evaluation import significance
from pfljax.report.columns import Column, Row
from pfljax.report.statistics import over_seeds


class Pair(NamedTuple):
    """The differences of one row less another over the n seeds that both have."""

    seeds: tuple[int, ...]  # [n]
    means: np.ndarray  # f64[n], means over clients, or another figure of the runs
    clients: tuple[np.ndarray, ...]  # f64[C] a seed, NaN without rows; () if not kept
    same_clients: bool  # in all seeds

    @property
    def counted(self) -> tuple[np.ndarray, ...]:
        """The clients that have rows, by seed; the means where none are kept."""
        if not self.clients:
            return tuple(self.means[:, None])
        return tuple(values[~np.isnan(values)] for values in self.clients)

    @property
    def p(self) -> float:
        """The p that decides: of seeds, or of one seed's clients; NaN without both."""
        if len(self.seeds) > 1:
            return significance.paired_t(self.means)
        return self.p_clients

    @property
    def p_clients(self) -> float:
        """Whether these clients win; NaN where they are not kept."""
        if not self.clients:
            return float("nan")
        return significance.clustered_signed_rank(self.clients, self.same_clients)


def unpaired(a: Row, b: Row) -> str:
    """Why the two cannot be paired, and what to do; empty where they can."""
    shared = sorted(set(a.seeds).intersection(b.seeds))
    if not shared:
        return (
            f"{a.method} has seeds {_listed(a.seeds)} and {b.method} has "
            f"{_listed(b.seeds)}: no pair is of one seed; run both with the same seeds"
        )
    for seed in shared if a.clients and b.clients else ():
        one, other = (row.clients[row.seeds.index(seed)].data for row in (a, b))
        if one != other:
            return (
                f"{a.method} and {b.method} of seed {seed} have other clients or rows "
                f"(SHA-256 {one[:8]} and {other[:8]}): no pair is of the same; run "
                "both on one data set, partition and seed"
            )
    return ""


def pair(a: Row, b: Row, key: str = "accuracy") -> Pair:
    """The differences in the column `key`; the clients' are those of the accuracy.

    A seed without the number is left out.

    Raises:
        ValueError: they have no seed in common, or other clients or data.
    """
    problem = unpaired(a, b)
    if problem:
        raise ValueError(problem)
    seeds = []
    means = []
    clients = []
    data = set()
    for place, seed in enumerate(a.seeds):
        if seed not in b.seeds:
            continue
        there = b.seeds.index(seed)
        difference = a.values[key][place] - b.values[key][there]
        if not np.isfinite(difference):
            continue
        seeds.append(seed)
        means.append(difference)
        if key == "accuracy" and a.clients and b.clients:
            ours = a.clients[place]
            clients.append(_difference(ours.accuracy, b.clients[there].accuracy))
            data.add(ours.data)
    is_kept = bool(clients) and all(values is not None for values in clients)
    kept = tuple(values for values in clients if values is not None)
    return Pair(
        seeds=tuple(seeds),
        means=np.array(means, np.float64),
        clients=kept if is_kept else (),
        same_clients=len(data) == 1,
    )


def against_best(rows: Sequence[Row], column: Column) -> np.ndarray:
    """Holm's corrected p f64[rows] of each row against the best of the column.

    NaN of the best itself, and of rows that cannot be paired with it.
    """
    if not rows:
        return np.array([])
    means = [over_seeds(row.values[column.key])[0] for row in rows]
    best = rows[int(np.argmax(column.better * np.array(means)))]
    p = np.full(len(rows), np.nan)
    of_one_seed = np.zeros(len(rows), bool)
    for i, row in enumerate(rows):
        if row is best or unpaired(row, best):
            continue
        differences = pair(row, best, column.key)
        p[i] = differences.p
        of_one_seed[i] = len(differences.seeds) == 1
    # Two families, as in `compared`.
    for family in (of_one_seed, ~of_one_seed):
        p[family] = significance.holm(p[family])
    return p


def _difference(a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
    """Differences f64[C] of the clients; None where one side is not kept."""
    if a is None or b is None:
        return None
    return np.asarray(a, np.float64) - np.asarray(b, np.float64)


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))
