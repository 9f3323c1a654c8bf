"""The interval of a mean difference, by seeds and by clients within them.

`interval` is the hierarchical bootstrap's, with the width of Student's t over seeds.
"""

from collections.abc import Sequence

import numpy as np

from pfljax.evaluation.significance import SMALLEST

DRAWS = 2000
KEY = 20_260  # of the generator: the same runs have the same interval
MANY = 256  # clients: of more, the mean of a resample is drawn as a normal number


def interval(differences: Sequence[np.ndarray]) -> tuple[float, float]:
    """95 % interval of the mean over seeds of the means over clients.

    By the hierarchical bootstrap: seeds are drawn with replacement, then clients within
    each; of one seed clients alone. A seed's mean may stand in place of its clients, as
    an array [1]. NaN of fewer than two values.

    Its percentiles give the shape, Student's t the width. Those of three seeds cannot
    leave their range, which holds the true mean three times in four. Clients add to the
    spread what the seeds' means already have of it. So the distances of the percentiles
    from the mean are scaled: the interval is as wide as that of t over seeds.
    """
    n = len(differences)
    means = np.array([of_seed.mean() for of_seed in differences])
    sample = means if n > 1 else differences[0]
    if len(sample) < 2:
        return float("nan"), float("nan")
    generator = np.random.default_rng(KEY)
    drawn = generator.integers(n, size=(DRAWS, n))
    resampled = np.empty((DRAWS, n))
    for seed, of_seed in enumerate(differences):
        is_drawn = drawn == seed
        count = int(is_drawn.sum())
        resampled[is_drawn] = _means_of_resamples(generator, of_seed, count)
    mean = means.mean()
    low, high = np.percentile(resampled.mean(axis=1), [2.5, 97.5]) - mean
    widening = _widening(sample, high - low)
    return float(mean + widening * low), float(mean + widening * high)


def _means_of_resamples(
    generator: np.random.Generator, values: np.ndarray, count: int
) -> np.ndarray:
    """Means f64[count] of resamples of the values f[C]."""
    C = len(values)
    if C > MANY:
        return generator.normal(values.mean(), values.std() / np.sqrt(C), count)
    return values[generator.integers(C, size=(count, C))].mean(axis=1)


def _widening(sample: np.ndarray, width: float) -> float:
    """How much wider than `width`, that of the percentiles, the interval of t is.

    `sample` f[n] are the means of the seeds.
    """
    from scipy import stats

    n = len(sample)
    error = sample.std(ddof=1) / np.sqrt(n)
    t = stats.t.ppf(0.975, n - 1)
    # Seeds that agree to the last row leave the clients' spread alone.
    if error < SMALLEST or width < SMALLEST:
        return float(t / stats.norm.ppf(0.975))
    return float(2 * t * error / width)
