"""Statistics over the seeds of a method.

Between seeds the std is the sample's (n - 1): they stand for all seeds that there could
be. Over the clients of one run it is the population's, for all of them are there.
"""

import numpy as np


def over_seeds(values: np.ndarray) -> tuple[float, float, int]:
    """(mean, sample std, count) of the defined values f[n]; NaN where too few."""
    defined = values[~np.isnan(values)]
    count = len(defined)
    if not count:
        return float("nan"), float("nan"), 0
    mean = float(defined.mean())
    # What a seed never reached is infinite, and has no spread.
    std = float(std_over_seeds(defined)) if np.isfinite(mean) else float("nan")
    return mean, std, count


def std_over_seeds(values: np.ndarray) -> np.ndarray:
    """Sample std over the leading axis of f[n, ...]; NaN for one seed."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    return values.std(axis=0, ddof=1)
