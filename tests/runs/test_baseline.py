"""The share of clients worse off than with local training."""

import numpy as np

from pfljax.runs import baseline


def test_worse_share_by_hand():
    accuracy = np.array([0.5, 0.6, 0.7, np.nan])
    share = baseline.worse_share(accuracy, np.array([0.6, 0.6, 0.6, 1.0]))
    assert share == 1 / 3
    assert np.isnan(baseline.worse_share(accuracy[3:], accuracy[:1]))
