"""Label noise: its matrices, its empirical rates, and which examples it touches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pfljax.data import federate, from_arrays
from pfljax.data.label_noise import flip, pair, symmetric

KINDS = {"pair": pair, "symmetric": symmetric}


@pytest.mark.parametrize("kind", KINDS)
@given(classes=st.integers(2, 30), rate=st.floats(0, 1))
def test_rows_are_distributions_that_keep_a_label_at_one_minus_rate(
    kind, classes, rate
):
    matrix = KINDS[kind](classes, rate=rate).matrix
    np.testing.assert_allclose(matrix.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(np.diag(matrix), 1 - rate, atol=1e-12)
    assert (matrix >= 0).all()


def test_matrices_are_those_of_the_paper():
    np.testing.assert_allclose(
        pair(3, rate=0.4).matrix, [[0.6, 0.4, 0], [0, 0.6, 0.4], [0.4, 0, 0.6]]
    )
    np.testing.assert_allclose(
        symmetric(3, rate=0.4).matrix,
        [[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]],
    )


@pytest.mark.parametrize("kind", KINDS)
def test_labels_turn_at_the_rates_of_the_matrix(kind):
    matrix, true = KINDS[kind](5, rate=0.3).matrix, np.repeat(np.arange(5), 20_000)
    found = flip(true, matrix, [7])
    assert found.dtype == np.int32
    for label in range(5):
        shares = np.bincount(found[true == label], minlength=5) / 20_000
        np.testing.assert_allclose(shares, matrix[label], atol=0.012)  # 3.7 sigma
        assert (shares[matrix[label] == 0] == 0).all()


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_rates_at_the_border(rate):
    true = np.arange(4).repeat(50)
    found = flip(true, pair(4, rate=rate).matrix, [0])
    np.testing.assert_array_equal(found, (true + int(rate)) % 4)


def dealt(noise, **options):
    """(federation, which pool examples are learnt from, which tested) of 4 classes."""
    count = 8000
    arrays = from_arrays(np.arange(count)[:, None], np.arange(count) % 4, name="mine")
    found = federate(
        arrays, "iid", num_clients=10, seed=3, test=0.25, noise=noise, **options
    )
    of = {name: np.zeros(count, bool) for name in found.parts}
    for name, part in found.parts.items():
        for at, size in zip(part.offset, part.size, strict=True):
            of[name][at : at + size] = True
    return found, of["train"] | of["validation"], of["test"]


def wrong(federation):
    """Which examples of the pool have another label than the data set gave them."""
    return np.asarray(federation.train.examples.y) != federation.index % 4


@pytest.mark.parametrize("kind", KINDS)
def test_test_labels_stay_clean(kind):
    found, learnt, tested = dealt(f"{kind}:rate=0.3")
    assert not wrong(found)[tested].any()
    assert abs(wrong(found)[learnt].mean() - 0.3) < 0.03
    assert found.manifest["noise"] == f"{kind}:rate=0.3"
    clean, *_ = dealt("none")
    assert not wrong(clean).any()
    np.testing.assert_array_equal(clean.index, found.index)
    assert clean.manifest["sha256"] != found.manifest["sha256"]


def test_noise_is_a_function_of_the_seed():
    again, other = dealt("pair:rate=0.3")[0], dealt("pair:rate=0.3")[0]
    np.testing.assert_array_equal(wrong(again), wrong(other))
