"""Figures of fairness over clients, and the rounds until a mean reaches a target.

The module needs NumPy only, so that finished runs are evaluated from their files
without JAX. `a` [N] is a metric of N clients, such as the accuracy. NaN stands for a
client without examples, and infinity for one that has diverged: neither counts. Without
clients, all figures are NaN.

Sources: q-FFL (Li et al., 2020) for variance, cosine and entropy; Jain, Chiu and Hawe
(1984) for the index; Gini (1912). Means of the worst and best tenth, and the weighted
mean: `pfljax.evaluation.over_clients.summarise`.
"""

from collections.abc import Sequence

import numpy as np

from pfljax.evaluation.over_clients import is_share

DECILES = tuple(range(10, 100, 10))  # in percent
BINS = 20  # of the histogram, 0.05 wide
EVENNESS = ("gini", "jain", "entropy_fairness", "cosine_fairness")
WINDOW = 3  # evaluations in the running mean that reaches a target, if not given


def figures(
    a: np.ndarray,
    local: np.ndarray | None = None,
    server: np.ndarray | None = None,
    tuned: np.ndarray | None = None,
    sign: int = 1,
) -> dict[str, float]:
    """All figures over clients of `a` [N], by name.

    Gains are differences to the same metric [N] of local training, of the server's
    model before it is personalised, and of fine-tuned FedAvg. They are NaN without it.
    `sign` is -1 for a metric of which less is better: a gain is then how much less.
    """
    values = spread(a) | evenness(a)
    references = {"local": local, "server": server, "tuned": tuned}
    for name, reference in references.items():
        if reference is None:
            reference = np.full(len(a), np.nan)
        values[f"gain_{name}"] = sign * mean_gain(a, reference)
        values[f"worse_than_{name}"] = worse_share(sign * a, sign * reference)
    return values


def spread(a: np.ndarray) -> dict[str, float]:
    """The deciles "p10" to "p90", "variance", "iqr" and "range" over clients.

    The variance is the population's, in squares of the metric's unit. Deciles and
    quartiles are interpolated linearly.
    """
    a = _drop_empty(a)
    names = [f"p{q}" for q in DECILES]
    if not len(a):
        return dict.fromkeys((*names, "variance", "iqr", "range"), float("nan"))
    values = dict(zip(names, np.percentile(a, DECILES).tolist(), strict=True))
    lower, upper = np.percentile(a, [25, 75])
    return values | {
        "variance": float(a.var()),
        "iqr": float(upper - lower),
        "range": float(a.max() - a.min()),
    }


def evenness(a: np.ndarray) -> dict[str, float]:
    """The figures of `EVENNESS`, which do not depend on the scale of `a`.

    Gini's index is in [0, 1 - 1/N], Jain's in [1/N, 1]. The entropy of shares, divided
    by log N, and the cosine are in [0, 1]. For equal clients, even if all are 0, the
    figures are 0, 1, 1 and 1. They are NaN if a client is below 0.
    """
    a = _drop_empty(a)
    N = len(a)
    if not N or a.min() < 0:
        return dict.fromkeys(EVENNESS, float("nan"))
    if a.min() == a.max():
        return dict(zip(EVENNESS, (0.0, 1.0, 1.0, 1.0), strict=True))
    share = np.sort(a) / a.sum()
    k = np.arange(1, N)
    # The sum of |share_i - share_j| over pairs: k clients lie below the k-th gap.
    gini = np.sum(k * (N - k) * np.diff(share)) / N
    jain = 1 / (N * np.sum(share**2))
    # The limit of share log share at 0 is 0.
    positive = share[share > 0]
    entropy = -np.sum(positive * np.log(positive)) / np.log(N)
    # The angle is that between `a` and the same for all.
    cosine = np.sqrt(jain)
    values = (gini, jain, entropy, cosine)
    return dict(zip(EVENNESS, map(float, values), strict=True))


def mean_gain(a: np.ndarray, reference: np.ndarray) -> float:
    """Mean of a - reference, both [N], over the clients that have both."""
    gain = _drop_empty(np.asarray(a, np.float64) - reference)
    return float(gain.mean()) if len(gain) else float("nan")


def worse_share(a: np.ndarray, reference: np.ndarray) -> float:
    """Share of clients whose metric `a` [N] lies below that of the reference [N]."""
    # A client without test examples has an accuracy of NaN, which is below nothing.
    both = np.isfinite(a) & np.isfinite(reference)
    if not both.any():
        return float("nan")
    return float(np.mean(a[both] < reference[both]))


def histogram(a: np.ndarray) -> np.ndarray:
    """The number of clients i[20] in bins of 0.05 of [0, 1]; the last includes 1."""
    # In float32 an accuracy of 7/20 lies a little below 0.35, its bin's edge.
    bins = np.floor(BINS * _drop_empty(a) + 1e-6).astype(int)
    return np.bincount(np.minimum(bins, BINS - 1), minlength=BINS)


def running_mean(curve: np.ndarray, window: int = WINDOW) -> np.ndarray:
    """The mean f[T] of each evaluation and those before it, `window` in all.

    It is NaN for the first `window` - 1.
    """
    curve = np.asarray(curve, np.float64)
    means = np.full(len(curve), np.nan)
    if len(curve) >= window:
        windows = np.lib.stride_tricks.sliding_window_view(curve, window)
        means[window - 1 :] = windows.mean(axis=1)
    return means


def first_reaching(
    curve: np.ndarray, target: float, window: int = WINDOW
) -> int | None:
    """Index of the first evaluation of `curve` [T] whose running mean has the target.

    It is None if there is none. One evaluation above the target does not reach it,
    unless the `window` is 1.
    """
    # NaN, as in a run that diverged, reaches nothing.
    (reaching,) = np.nonzero(running_mean(curve, window) >= target)
    return int(reaching[0]) if len(reaching) else None


def area(rounds: np.ndarray, curve: np.ndarray) -> float:
    """Area under `curve` [T] by trapezoids, over the length of `rounds` [T].

    This is the mean of the metric along the run; NaN for fewer than two evaluations.
    """
    if len(rounds) < 2:
        return float("nan")
    return float(np.trapezoid(curve, rounds) / (rounds[-1] - rounds[0]))


def check_targets(
    targets: Sequence[float], window: int = WINDOW, metric: str = "accuracy"
) -> None:
    """Raises a ValueError for no window, or a target that no such metric has."""
    if window < 1:
        raise ValueError(
            f"target window is {window}; expected a number of evaluations, at least 1"
        )
    for target in targets:
        if is_share(metric) and not 0 < target <= 1:
            raise ValueError(
                f"target is {target}; expected a value of {metric} above 0, at "
                "most 1, such as 0.8"
            )
        if not np.isfinite(target):
            raise ValueError(f"target is {target}; expected a value of {metric}")


def _drop_empty(a: np.ndarray) -> np.ndarray:
    """`a` in float64, without the clients that do not count."""
    a = np.asarray(a, np.float64)
    return a[np.isfinite(a)]
