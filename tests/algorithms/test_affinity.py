import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms import _affinity as affinity
from pfljax.conformance import toy

COUNT = 7
ROW = 3 * 2 * 4 + 4  # bytes of one of the models below


def models(seed=0, scale=1.0, middle=0.0):
    """Seven models of two leaves and a running statistic, and what counts of them."""
    values = np.random.default_rng(seed).normal(size=(COUNT, 7))
    values = np.float32(middle + scale * values)
    tree = {
        "kernel": jnp.asarray(values[:, :6].reshape(COUNT, 3, 2)),
        "norm": {
            "bias": jnp.asarray(values[:, 6]),
            "batch_stats": jnp.asarray(values[:, 0] * 1e3),
        },
    }
    return tree, np.float64(values)


def one_of(tree, row):
    return jax.tree.map(lambda leaf: leaf[row], tree)


def mean_of(tree):
    return jax.tree.map(lambda leaf: leaf.mean(0), tree)


@pytest.mark.parametrize("rows", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_distances_and_cosines_whatever_the_block(rows, monkeypatch):
    monkeypatch.setattr(affinity, "BLOCK_BYTES", rows * ROW)
    stacked, values = models()
    centre = mean_of(stacked)
    gaps = values[:, None] - values
    wanted = (gaps**2).sum(-1)

    def distances(row):
        return affinity.square_distances(stacked, one_of(stacked, row), centre)

    found = affinity.matrix(distances, COUNT)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    lengths = np.linalg.norm(values, axis=1)
    angles = values @ values.T / np.outer(lengths, lengths)
    of_one = jax.vmap(lambda row: affinity.cosines(stacked, one_of(stacked, row)))
    np.testing.assert_allclose(of_one(jnp.arange(COUNT)), angles, rtol=1e-4, atol=1e-6)


def test_models_far_from_zero_keep_their_distances():
    stacked, values = models(scale=1e-3, middle=10.0)
    own = one_of(stacked, 2)
    wanted = ((values - values[2]) ** 2).sum(-1)
    found = affinity.square_distances(stacked, own, mean_of(stacked))
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-9)
    assert (found >= 0).all()


def test_a_model_of_zeros_has_no_angle():
    stacked = {"w": jnp.array([[0.0, 0], [1, 0], [1, 1]])}
    found = affinity.cosines(stacked, {"w": jnp.array([2.0, 0])})
    np.testing.assert_allclose(found, [0, 1, 2**-0.5], rtol=1e-6)
    none = affinity.cosines(stacked, {"w": jnp.zeros(2)})
    np.testing.assert_array_equal(none, 0)


@pytest.mark.parametrize("tool", ["distances", "cosines"])
def test_a_thousand_models_are_looked_at_in_blocks(tool):
    """Beside 797 MB of models nothing but small blocks is made, for 8 clients."""
    shape = jax.ShapeDtypeStruct((1000, 199_210), jnp.float32)
    one = jax.ShapeDtypeStruct((8, 199_210), jnp.float32)
    centre = jax.ShapeDtypeStruct((199_210,), jnp.float32)

    def rows(stacked, ones, centre):
        if tool == "cosines":
            return jax.vmap(lambda own: affinity.cosines(stacked, own))(ones)
        of_one = lambda own: affinity.square_distances(stacked, own, centre)  # noqa: E731
        return jax.vmap(of_one)(ones)

    compiled = jax.jit(rows).lower(shape, one, centre).compile()
    stats = compiled.memory_analysis()
    assert stats.argument_size_in_bytes > 7e8
    assert stats.temp_size_in_bytes < 6 * affinity.BLOCK_BYTES


def test_the_server_has_what_was_sent():
    params = {"w": jnp.array([1.0, 2])}
    known = affinity.first_models(params, 4)
    toy.assert_same(affinity.mean(known), params)
    asked = toy.cohort([1.0, 0, 1])._replace(ids=jnp.array([3, 0, 1]))
    uploads = {"w": jnp.array([[3.0, 3], [9, 9], [5, 7]])}
    known = affinity.receive(known, uploads, asked)
    np.testing.assert_array_equal(known.heard, [0, 1, 0, 1])
    np.testing.assert_array_equal(known.params["w"], [[1, 2], [5, 7], [1, 2], [3, 3]])
    np.testing.assert_array_equal(affinity.mean(known)["w"], [4, 5])
    np.testing.assert_array_equal(affinity.others(known, jnp.int32(3)), [0, 1, 0, 0])
    # Client 4 is of no run.
    for client_id, sent in enumerate([False, True, False, True, False]):
        assert affinity.has_sent(known, jnp.int32(client_id)) == sent
    np.testing.assert_array_equal(affinity.others(known, jnp.int32(4)), known.heard)
