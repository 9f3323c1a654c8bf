"""Robust reducers and lost uploads against NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from pfljax import channel
from uplink import CLIENTS, KEY, arrived, made, state_of

RNG = np.random.default_rng(5)
CHANGES = RNG.normal(size=(CLIENTS, 4)).astype(np.float32)
START = RNG.normal(size=4).astype(np.float32)
MASK = np.array([1, 1, 0, 1, 1, 1, 0, 1, 1, 1.0])
HERE = MASK > 0
REDUCERS = ["median", "trimmed_mean:trim=0.2", "krum:byzantine=2,chosen=3",
            "geometric_median", "centred_clip:radius=0.7,iterations=3", "norm_clip",
            "norm_clip:norm=1.1"]  # fmt: skip


@pytest.mark.parametrize("name", REDUCERS)
def test_a_permutation_of_clients_permutes_what_arrives(name):
    order = RNG.permutation(CLIENTS)
    found, _ = arrived(made(name), START, CHANGES, MASK)
    permuted, _ = arrived(made(name), START, CHANGES[order], MASK[order])
    np.testing.assert_allclose(
        permuted[HERE[order]], found[order][HERE[order]], atol=1e-5
    )


@pytest.mark.parametrize("name", REDUCERS)
def test_reducers_follow_their_origin(name):
    """They are of changes: another origin moves the uploads alone."""
    found, _ = arrived(made(name), START, CHANGES, MASK)
    moved, _ = arrived(made(name), START + 3, CHANGES, MASK)
    np.testing.assert_allclose(moved[HERE], found[HERE], atol=1e-4)


def test_the_geometric_median_has_the_least_sum_of_distances():
    here = CHANGES[HERE]

    def total(z):
        return np.linalg.norm(here - z, axis=1).sum()

    least = minimize(total, here.mean(0, dtype=float)).x
    chain = made("geometric_median:iterations=60")
    found, _ = arrived(chain, START, CHANGES, MASK)
    np.testing.assert_allclose(found, np.tile(least, (CLIENTS, 1)), atol=2e-3)
    z = here.mean(0)
    for _ in range(2):  # Weiszfeld by hand
        near = 1 / np.maximum(1e-6, np.linalg.norm(here - z, axis=1))
        z = near @ here / near.sum()
    found, _ = arrived(made("geometric_median:iterations=2"), START, CHANGES, MASK)
    np.testing.assert_allclose(found[0], z, atol=1e-5)


def test_of_equal_uploads_the_geometric_median_is_each():
    same = np.tile(CHANGES[:1], (CLIENTS, 1))
    found, _ = arrived(made("geometric_median"), np.zeros(4), same)
    np.testing.assert_allclose(found, same, rtol=1e-5)


def test_norm_clip_against_numpy():
    length = np.linalg.norm(CHANGES, axis=1)
    for name, limit in [
        ("norm_clip:norm=1.3", 1.3), ("norm_clip", np.median(length[HERE])),
    ]:  # fmt: skip
        found, _ = arrived(made(name), START, CHANGES, MASK)
        wanted = CHANGES * np.minimum(1, limit / length)[:, None]
        np.testing.assert_allclose(found[HERE], wanted[HERE], atol=1e-5)


def test_a_large_norm_changes_no_bit():
    found, _ = arrived(made("norm_clip:norm=1e30"), np.zeros(4), CHANGES)
    np.testing.assert_array_equal(found, CHANGES)


def test_centred_clip_moves_its_centre():
    """Karimireddy et al., Algorithm 2: the centre of a round is that of the next."""
    chain = made("centred_clip:radius=0.7,iterations=2")
    v = np.zeros(4)
    state = None
    for seed in range(3):
        changes = CHANGES + seed
        found, state = arrived(chain, START, changes, MASK, state)
        for _ in range(2):
            apart = changes[HERE] - v
            length = np.linalg.norm(apart, axis=1)[:, None]
            v = v + (apart * np.minimum(1, 0.7 / length)).mean(0)
        np.testing.assert_allclose(found, np.tile(v, (CLIENTS, 1)), atol=1e-4)
    _, same = arrived(chain, START, CHANGES, np.zeros(CLIENTS), state)
    np.testing.assert_array_equal(same[0]["w"], state[0]["w"])


def test_a_large_radius_is_the_mean():
    found, _ = arrived(made("centred_clip:radius=1e9"), START, CHANGES, MASK)
    wanted = np.tile(CHANGES[HERE].mean(0), (CLIENTS, 1))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_centre_needs_its_shape():
    with pytest.raises(ValueError, match=r"needs the shapes of uploads"):
        state_of(made("centred_clip"))


def test_lost_uploads_are_a_share_of_them():
    chain = made("lost:share=0.3")
    assert chain.arrives is not None
    many = jnp.arange(4000)
    arrived = np.asarray(chain.arrives(KEY, many))
    assert set(arrived.tolist()) == {0, 1}
    assert arrived.mean() == pytest.approx(0.7, abs=0.03)
    # By the client, whatever place it has.
    np.testing.assert_array_equal(chain.arrives(KEY, many[::-1]), arrived[::-1])
    twice = np.asarray(made("lost:share=0.3", "lost:share=0.3").arrives(KEY, many))
    assert twice.mean() == pytest.approx(0.49, abs=0.03)


def test_no_loss_is_no_channel():
    chain = made("lost:share=0")
    assert chain.arrives is None
    assert chain.receive is channel.as_received
