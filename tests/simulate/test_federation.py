"""The clients of an experiment, by its seeds."""

import numpy as np

import tiny
from pfljax.simulate.federation import build_federation


def spans(**settings):
    """The examples of the clients that train, and of those that are held out."""
    parts = build_federation(tiny.SEEN.replace(**settings))
    return [np.stack([part.train.offset, part.train.size]) for part in parts]


def test_one_partition_for_all_training_seeds():
    first = spans(seed=3)
    for one, other in zip(first, spans(seed=5, data_seed=3), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not all(map(np.array_equal, first, spans(seed=5)))
