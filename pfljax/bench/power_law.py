"""Rows of the clients of W3: few have many."""

import numpy as np

# A log-normal tail on a floor.
FEWEST = 10
MOST = 4000
MEAN = 69.0
SIGMA = 1.9


def power_law(clients: int) -> np.ndarray:
    """Rows i64[clients] from FEWEST to MOST, of mean MEAN: few have many."""
    tail = np.random.RandomState(0).lognormal(0.0, SIGMA, clients)

    def clipped(scale: float) -> np.ndarray:
        return np.clip(FEWEST + np.floor(scale * tail), FEWEST, MOST)

    # Bisection: the mean grows with the scale, and `high` is always enough.
    low = 0.0
    high = 1e4
    for _ in range(60):
        middle = (low + high) / 2
        if clipped(middle).mean() >= MEAN:
            high = middle
        else:
            low = middle
    return clipped(high).astype(np.int64)
