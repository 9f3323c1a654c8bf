"""Whether one method is better than another, from their differences in pairs.

`paired_t`, `signed_rank`    would another seed say the same? p of the seeds' means [n]
`clustered_signed_rank`      do these clients win? p of the clients [C] of each seed
`holm`                       p of several tests, corrected
`win_tie_loss`               how many clients win, tie and lose
`least_p`                    the least p that signs of so many seeds can give

`bootstrap.interval` has the interval of the mean. NumPy and SciPy alone: finished runs
are judged again from their files.

Of n seeds the signed-rank test can give no two-sided p below 2 / 2^n, as can no test
that goes by signs: .25 of three, .0625 of five. Student's t goes by sizes and has no
such bound. It asks that means over the clients of a seed be near normal, which sums of
many clients are. So t decides, and Wilcoxon's test stands beside it.
"""

from collections.abc import Sequence

import numpy as np

LEVEL = 0.05
EXACT = 16  # clusters: of more, the sum of signed ranks is near normal
SMALLEST = 1e-6  # differences below it come of rounding, in float32


def paired_t(means: np.ndarray) -> float:
    """Two-sided p of Student's t for differences f[n] of n seeds, of mean 0.

    NaN of fewer than two seeds, 1 where none differs. Where all differ alike there is
    no t: a spread of 0 comes of rows that can be counted, and is no sign of certainty.
    It is then the p of their signs.
    """
    from scipy import stats

    n = len(means)
    if n and np.abs(means).max() < SMALLEST:
        return 1.0
    if n < 2:
        return float("nan")
    if np.ptp(means) < SMALLEST:
        return least_p(n)
    t = means.mean() / (means.std(ddof=1) / np.sqrt(n))
    return float(2 * stats.t.sf(abs(t), n - 1))


def signed_rank(values: np.ndarray) -> float:
    """Two-sided p of Wilcoxon's signed-rank test for f[n]; see `_of_signs`."""
    return _of_signs(_signed_ranks(values))


def clustered_signed_rank(
    differences: Sequence[np.ndarray], same_clients: bool
) -> float:
    """Two-sided p of Wilcoxon's signed-rank test for clients f[C] within seeds.

    Ranks are taken within a seed, whose differences are of one size, and signs are
    those of a cluster: a client with all its seeds if these have the `same_clients`,
    for what a client gains in one seed it often does in another (Rosner, Glynn and
    Lee, 2006). Else each client of each seed is one.
    """
    ranks = [_signed_ranks(of_seed) for of_seed in differences]
    sums = np.sum(ranks, axis=0) if same_clients else np.concatenate(ranks)
    return _of_signs(sums)


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's corrected p f64[m] of m tests; a NaN is no test and stays.

    The smallest is multiplied by the number of tests, the next by one less, and so on;
    none falls below a smaller one's. All below .05 are significant together at 5 %.
    """
    p = np.asarray(p, np.float64)
    corrected = np.full(len(p), np.nan)
    order = np.argsort(p, kind="stable")[: np.isfinite(p).sum()]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(1, np.maximum.accumulate(factors * p[order]))
    return corrected


def win_tie_loss(differences: Sequence[np.ndarray]) -> tuple[int, int, int]:
    """Clients of all seeds that win, that tie, and that lose."""
    values = np.concatenate(list(differences))
    wins = int(np.sum(values >= SMALLEST))
    losses = int(np.sum(values <= -SMALLEST))
    return wins, len(values) - wins - losses, losses


def least_p(n: int) -> float:
    """The least two-sided p that signs of n seeds can give."""
    return min(1.0, 2 / 2**n)


def _signed_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks f[n] of the sizes, with the signs of the values; 0 where one is none.

    Ties share the mean of their ranks.
    """
    from scipy import stats

    values = np.asarray(values, np.float64)
    is_told = np.abs(values) >= SMALLEST  # not of a NaN
    # Rounded: 2/3 - 1/3 and 1/3 are a tie.
    sizes = np.abs(values[is_told]).round(6)
    signed = np.zeros(len(values))
    signed[is_told] = np.sign(values[is_told]) * stats.rankdata(sizes)
    return signed


def _of_signs(sums: np.ndarray) -> float:
    """Two-sided p of the total of `sums`, if the sign of each was as likely as not.

    Exact by enumeration up to 16 that are not 0, normal beyond; 1 where there is none.
    """
    from scipy import stats

    sums = sums[sums != 0]
    K = len(sums)
    if not K:
        return 1.0
    total = abs(sums.sum())
    if K > EXACT:
        return float(2 * stats.norm.sf(total / np.sqrt(np.sum(sums**2))))
    signs = 1 - 2 * ((np.arange(2**K)[:, None] >> np.arange(K)) & 1)
    # Sums of halves are exact; a little is taken off for means of ties in thirds.
    return float(np.mean(np.abs(signs @ sums) >= total - SMALLEST))
