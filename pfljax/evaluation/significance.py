"""Tests whether one method is better than another, from their paired differences.

The question is whether another seed would give the same answer. From five seeds on,
Student's t over the means of the seeds decides. With two to four seeds these means
alone have almost no power, so the test also uses the clients: it is a moderated t
(Smyth, 2004), whose variance is shrunk towards the one that the clients explain. At two
seeds of 20 clients it finds a difference of 15 points in 96 % of draws, Student's t in
28 % (experiments/significance/REPORT.md). With one seed the answer is rough.

For S seeds with C clients, of m comparisons that are read together:

    s2 = variance of the seeds' means                              S - 1 degrees
    u  = variance over the clients of a seed / C, mean over seeds
    r  = max(1 + C / 20, mean over the comparisons of s2 / u)
    v  = (d0 r u + (S - 1) s2) / (d0 + S - 1)                      d0 = 4
    t  = mean / sqrt(v / S)                                        d0 + S - 1 degrees

What the clients of a seed share, such as a lucky server model, does not average out
over clients. Hence 1 + C / 20, which was measured.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

LEVEL = 0.05
POWER = 0.8
ENOUGH = 5  # seeds from which on they are tested alone
EXACT = 50  # differences up to which the distribution of ranks is enumerated
PRIOR = 4  # degrees of freedom of the variance that the clients explain
MOST_SEEDS = 100  # that a comparison is advised to run
SMALLEST = 1e-6  # smaller differences are rounding errors of float32


class Pair(NamedTuple):
    """The differences between two methods under S seeds."""

    means: np.ndarray  # f64[S], each over the clients of a seed
    clients: tuple[np.ndarray, ...] = ()  # f64[C] for each seed; empty if unknown
    same_clients: bool = False  # whether all seeds have the same clients


class Estimate(NamedTuple):
    """The mean difference, its 95 % interval and two-sided p; NaN where unknown."""

    difference: float
    low: float
    high: float
    p: float
    variance: float  # of the mean difference of one seed


def estimate(pairs: Sequence[Pair]) -> list[Estimate]:
    """Tests of comparisons that are read together; p is not yet corrected."""
    ratios = []
    for pair in pairs:
        u = client_variance(pair)
        if 1 < len(pair.means) < ENOUGH and u > 0:
            ratios.append(pair.means.var(ddof=1) / u)
    ratio = float(np.mean(ratios)) if ratios else 0.0
    return [_estimate(pair, ratio) for pair in pairs]


def _estimate(pair: Pair, ratio: float) -> Estimate:
    from scipy import stats

    seeds = len(pair.means)
    difference = float(pair.means.mean())
    variance, degrees = _variance(pair, ratio)
    if degrees == 0:
        p = 1.0 if abs(difference) < SMALLEST else np.nan
        return Estimate(difference, np.nan, np.nan, p, np.nan)
    if variance < SMALLEST**2:
        # Seeds that agree exactly are counts that tie, not proof: p is that of signs.
        p = 1.0 if abs(difference) < SMALLEST else 2 / 2**seeds
        return Estimate(difference, difference, difference, p, 0.0)
    error = np.sqrt(variance / seeds)
    half = stats.t.ppf(1 - LEVEL / 2, degrees) * error
    p = 2 * stats.t.sf(abs(difference) / error, degrees)
    return Estimate(
        difference, difference - half, difference + half, float(p), float(variance)
    )


def _variance(pair: Pair, ratio: float) -> tuple[float, int]:
    """The variance of a seed's mean difference, and its degrees of freedom."""
    degrees = len(pair.means) - 1
    of_seeds = float(pair.means.var(ddof=1)) if degrees else 0.0
    u = client_variance(pair)
    if degrees + 1 >= ENOUGH or u == 0:
        return of_seeds, degrees
    clients = np.mean([len(values) for values in pair.clients])
    prior = max(1 + clients / 20, ratio) * u
    total = PRIOR * prior + degrees * of_seeds
    return float(total / (PRIOR + degrees)), PRIOR + degrees


def client_variance(pair: Pair) -> float:
    """The variance of a seed's mean that its clients explain; 0 if they are unknown."""
    if not pair.clients or min(map(len, pair.clients)) < 2:
        return 0.0
    if not pair.same_clients or len(pair.clients) == 1:
        variances = [d.var(ddof=1) / len(d) for d in pair.clients]
        return float(np.mean(variances))
    # The gain of a client under every seed is not chance: only the rest is.
    d = np.stack(pair.clients)
    seeds, clients = d.shape
    of_clients = d.mean(0)
    of_seeds = d.mean(1, keepdims=True)
    rest = d - of_clients - of_seeds + d.mean()
    degrees = (seeds - 1) * (clients - 1)
    return float((rest**2).sum() / degrees / clients)


def seeds_needed(estimate: Estimate, comparisons: int) -> int | None:
    """The number of seeds that find this difference in 80 % of cases.

    The count is for Student's t at the first step of Holm's correction over so many
    comparisons. It is None if more than 100 seeds are needed.
    """
    from scipy import stats

    if abs(estimate.difference) < SMALLEST:
        return None
    seeds = np.arange(ENOUGH, MOST_SEEDS + 1)
    level = stats.t.ppf(1 - LEVEL / (2 * comparisons), seeds - 1)
    needed = level + stats.t.ppf(POWER, seeds - 1)
    # Without a division: the variance is 0 where all seeds agree.
    enough = abs(estimate.difference) >= needed * np.sqrt(estimate.variance / seeds)
    return int(seeds[enough][0]) if enough.any() else None


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's corrected p f64[m] of m tests; NaN is no test and stays."""
    # The function of statsmodels collects garbage, 0.2 s a call beside JAX.
    corrected = np.array(p, np.float64)
    is_test = np.isfinite(corrected)
    tested = corrected[is_test]
    order = np.argsort(tested)
    rising = np.maximum.accumulate(tested[order] * np.arange(len(tested), 0, -1))
    tested[order] = np.minimum(rising, 1)
    corrected[is_test] = tested
    return corrected


def signed_rank(values: np.ndarray) -> float:
    """Two-sided p of Wilcoxon's signed-rank test for f[n]; 1 if nothing differs."""
    from scipy import stats

    # Rounded, so that 2/3 - 1/3 and 1/3 tie.
    values = np.asarray(values, np.float64).round(6)
    values = values[np.isfinite(values) & (values != 0)]
    if not len(values):
        return 1.0
    is_small = len(values) <= EXACT and len(np.unique(np.abs(values))) == len(values)
    # For small samples with ties SciPy would go through all permutations: a second.
    method = "exact" if is_small else "asymptotic"
    result: Any = stats.wilcoxon(values, method=method)
    return float(result.pvalue)


def win_tie_loss(values: np.ndarray) -> tuple[int, int, int]:
    """The numbers of differences f[n] that are above 0, equal to 0, and below 0."""
    wins = int(np.sum(values >= SMALLEST))
    losses = int(np.sum(values <= -SMALLEST))
    return wins, len(values) - wins - losses, losses
