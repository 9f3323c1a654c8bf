import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.distillation import _low_rank as low_rank

rank_of = jax.jit(low_rank.choose_rank)
compressed = jax.jit(low_rank.compress)


@pytest.mark.parametrize(
    ("s", "energy", "rank"),
    [
        ((1, 1), 0.95, 2),  # the published search leaves these two at rank 0
        ((3, 2, 1), 0.95, 3),
        ((3, 2, 1), 0.9, 2),  # 13 of 14
        ((3, 2, 1), 9 / 14 - 1e-3, 1),
        ((3, 2, 1), 1.0, 3),
        ((3, 0, 0), 1.0, 1),
        ((3, 2, 1), 0.0, 1),
        ((0, 0), 0.95, 1),
        ((3e-25, 2e-25, 1e-25), 0.95, 3),  # squares of which are 0
    ],
)
def test_the_least_rank_that_keeps_the_energy(s, energy, rank):
    assert int(rank_of(jnp.asarray(s, jnp.float32), energy)) == rank


def spectrum(s, rows=12, columns=10, seed=0):
    """A matrix of these singular values, in NumPy."""
    rng = np.random.default_rng(seed)
    u, _ = np.linalg.qr(rng.normal(size=(rows, rows)))
    v, _ = np.linalg.qr(rng.normal(size=(columns, columns)))
    return (u[:, : len(s)] * s) @ v[: len(s)]


@pytest.mark.parametrize(
    ("energy", "rank"), [(0.3, 1), (0.9, 2), (0.97, 3), (0.999, 4)]
)
def test_what_arrives_is_numpys_truncation(energy, rank):
    s = np.array([8, 4, 2, 1.0])
    a = spectrum(s)
    found, size = compressed({"w": jnp.asarray(a, jnp.float32)}, energy)
    u, sigma, vt = np.linalg.svd(a)
    wanted = (u[:, :rank] * sigma[:rank]) @ vt[:rank]
    np.testing.assert_allclose(found["w"], wanted, atol=1e-5)
    assert size == 4 * rank * (12 + 10 + 1)
    kept = np.square(found["w"]).sum() / np.square(a).sum()
    assert kept >= energy - 1e-6


def test_all_of_the_energy_loses_nothing():
    """Also of what a sum of squares in float32 would not see."""
    a = jnp.asarray(spectrum(np.array([1, 1e-4])), jnp.float32)
    found, _ = compressed(a, 1.0)
    np.testing.assert_allclose(found, a, atol=1e-7)
    assert np.abs(compressed(a, 0.999)[0] - a).max() > 1e-6


def test_a_matrix_goes_whole_where_low_rank_is_longer():
    """Of equal singular values: rank 5 of 10 is 115 numbers, 6 is 138 of 120."""
    a = jnp.asarray(spectrum(np.ones(10)), jnp.float32)
    for energy, numbers, whole in ((0.45, 115, False), (0.55, 120, True)):
        found, size = compressed(a, energy)
        assert size == 4 * numbers
        assert np.array_equal(found, a) == whole


def test_kernels_vectors_and_tables():
    """A kernel [5, 5, 3, 8] is a matrix [75, 8]; vectors and tables go as they are."""
    rng = np.random.default_rng(1)
    rank_one = np.outer(rng.normal(size=75), rng.normal(size=8))
    rank_two = rank_one + np.outer(rng.normal(size=75), rng.normal(size=8)) / 10
    a = {
        "conv": {"kernel": jnp.asarray(rank_two.reshape(5, 5, 3, 8), jnp.float32)},
        "bias": jnp.arange(8.0),
        "embedding": jnp.asarray(rng.normal(size=(6, 4)), jnp.float32),
    }
    found, size = compressed(a, 0.5)
    kernel = found["conv"]["kernel"].reshape(75, 8)
    assert np.linalg.matrix_rank(kernel, tol=1e-4) == 1
    assert size == 4 * (75 + 8 + 1 + 8 + 24)
    for name in ("bias", "embedding"):
        np.testing.assert_array_equal(found[name], a[name])


def test_nothing_stays_nothing():
    found, size = compressed(jnp.zeros((12, 10)), 0.95)
    assert not found.any()
    assert size == 4 * 23  # a rank is at least 1


def test_clients_have_ranks_of_their_own():
    """Under one vmap, where shapes are the same for all."""
    stack = [spectrum(np.array(s, float)) for s in ([4, 1, 1], [1, 1, 1])]
    a = jnp.asarray(np.stack(stack), jnp.float32)
    found, sizes = jax.vmap(low_rank.compress, (0, None))(a, 0.85)
    assert [np.linalg.matrix_rank(each, tol=1e-4) for each in found] == [1, 3]
    np.testing.assert_array_equal(sizes, [4 * 23, 4 * 69])
