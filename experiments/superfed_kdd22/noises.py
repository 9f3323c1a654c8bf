"""Label noise as in SuPerFed's code, under the names of the paper's two kinds.

The kinds are swapped, and a client's test labels are as noisy as its other labels. The
published Table 4 agrees only with this. (The code also partitions examples by their
noisy labels. Here the true labels are used, which is almost the same at Table 4's
alpha = 100.)
"""

from pfljax.data.label_noise import Noise, pair, symmetric


def pair_legacy(num_classes: int, *, rate: float) -> Noise:
    """What the code does for "pair"."""
    return symmetric(num_classes, rate=rate)._replace(tests_too=True)


def symmetric_legacy(num_classes: int, *, rate: float) -> Noise:
    """What the code does for "symmetric"."""
    return pair(num_classes, rate=rate)._replace(tests_too=True)


NOISES = {"pair_legacy": pair_legacy, "symmetric_legacy": symmetric_legacy}
