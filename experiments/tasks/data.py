"""The data sets of the studies: functions that `--dataset FILE:NAME` finds."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, load_digits

from pfljax.data import Arrays, from_arrays

SHAPES = np.array(  # of the digits 0 .. 9: even, 5 or more, with a closed loop
    [[1 - k % 2, int(k >= 5), int(k in (0, 6, 8, 9))] for k in range(10)]
)


def diabetes() -> Arrays:
    """Progression of diabetes in 442 patients, in its standard deviations."""
    x, y = load_diabetes(return_X_y=True, scaled=False)
    return from_arrays(
        (x - x.mean(0)) / x.std(0),
        (y - y.mean()) / y.std(),
        task="regression",
        name="diabetes",
        source="Efron et al., Least angle regression, 2004, as scikit-learn has it",
    )


def digit_attributes() -> Arrays:
    """Three attributes of 1,797 digits: even, 5 or more, with a closed loop."""
    x, y = load_digits(return_X_y=True)
    return from_arrays(
        x.reshape(-1, 8, 8).astype(np.float32),
        SHAPES[y],
        task="multilabel",
        scale=16.0,
        name="digit_attributes",
        class_names=("even", "5 or more", "loop"),
        source="E. Alpaydin and C. Kaynak, UCI, 1998, as scikit-learn has it",
    )


def movielens(*, path: str) -> Arrays:
    """MovieLens latest-small, each user a client: 100,836 ratings from 0.5 to 5.

    `path` is movielens_latest_small.npz with user, movie and rating_x2. The last fifth
    of a user's ratings by time is the official test.
    """
    stored = np.load(Path(path))
    user, movie = (
        np.unique(stored[name], return_inverse=True)[1] for name in ("user", "movie")
    )
    # The place of a rating among those of its user, by time.
    order = np.lexsort((stored["timestamp"], user))
    size = np.bincount(user)
    place = np.arange(len(user)) - np.repeat(np.cumsum(size) - size, size)
    official = np.empty(len(user), np.uint8)
    official[order] = place >= np.repeat(np.floor(0.8 * size), size)
    return from_arrays(
        np.stack([user, movie], 1),
        stored["rating_x2"] / 2,
        client=user,
        official=official,
        task="ratings",
        name="movielens",
        source="GroupLens, MovieLens latest-small, for non-commercial use",
    )
