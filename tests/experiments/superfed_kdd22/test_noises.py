"""Label noise of SuPerFed's code: which labels turn, and into what."""

import numpy as np

from pfljax.data import federate, from_arrays
from pfljax.data.label_noise import label_noise


def dealt(noise):
    """(by how many classes a pool row's label turned, which are learnt from, tested)"""
    count = 8000
    arrays = from_arrays(np.arange(count)[:, None], np.arange(count) % 4, name="mine")
    found = federate(arrays, "iid", num_clients=10, seed=3, test=0.25, noise=noise)
    of = {name: np.zeros(count, bool) for name in found.parts}
    for name, part in found.parts.items():
        for at, size in zip(part.offset, part.size, strict=True):
            of[name][at : at + size] = True
    shift = (np.asarray(found.train.examples.y) - found.index) % 4
    return shift, of["train"] | of["validation"], of["test"]


def test_legacy_swaps_the_kinds_and_spoils_the_tests():
    shift, learnt, tested = dealt("symmetric_legacy:rate=0.6")
    assert set(shift) == {0, 1}  # pairs
    for part in learnt, tested:
        assert abs((shift[part] == 1).mean() - 0.6) < 0.05
    shift, _, _ = dealt("pair_legacy:rate=0.6")
    np.testing.assert_allclose(
        np.bincount(shift) / len(shift), [0.4, 0.2, 0.2, 0.2], atol=0.03
    )


def test_a_model_that_learns_its_noisy_labels_agrees_as_table_4_does():
    """Sum of T_ij^2 of SuPerFed's code: the four noise columns of MNIST."""
    named = ("pair", 0.1), ("pair", 0.4), ("symmetric", 0.2), ("symmetric", 0.6)
    for (kind, rate), expected in zip(named, (0.811, 0.378, 0.68, 0.52), strict=True):
        noise = label_noise(f"{kind}_legacy:rate={rate}", 10)
        assert noise is not None
        assert noise.tests_too
        np.testing.assert_allclose((noise.matrix**2).sum(1), expected, atol=5e-4)
