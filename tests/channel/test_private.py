"""Noise at the server, and a clipping norm that follows a quantile, against NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import channel
from pfljax.channel.private import noises
from uplink import CLIENTS, arrived, made

RNG = np.random.default_rng(7)
LENGTHS = np.linspace(0.1, 2, CLIENTS)
CHANGES = RNG.normal(size=(CLIENTS, 5))
CHANGES *= (LENGTHS / np.linalg.norm(CHANGES, axis=1))[:, None]
CHANGES = CHANGES.astype(np.float32)
START = RNG.normal(size=5).astype(np.float32)
MASK = np.array([1, 1, 1, 1, 0, 1, 1, 0, 1, 1.0])


def clipped(norm):
    length = np.linalg.norm(CHANGES, axis=1)
    return CHANGES * np.minimum(1, norm / length)[:, None]


def test_the_sum_is_divided_by_those_asked():
    """All count alike, and who does not report leaves the denominator as it is."""
    found, _ = arrived(made("dp:norm=0.5,multiplier=1e-6"), START, CHANGES, MASK)
    wanted = (MASK[:, None] * clipped(0.5)).sum(0) / CLIENTS
    np.testing.assert_allclose(found, np.tile(wanted, (CLIENTS, 1)), atol=1e-5)


def test_the_noise_has_its_deviation():
    wide = np.zeros((CLIENTS, 20_000))
    found, _ = arrived(made("dp:norm=0.5,multiplier=3"), np.zeros(20_000), wide)
    np.testing.assert_array_equal(found[0], found[1])  # one value for all
    assert found[0].std() == pytest.approx(3 * 0.5 / CLIENTS, rel=0.03)
    other, _ = arrived(made("dp:norm=0.5,multiplier=3"), np.zeros(20_000), wide, seed=1)
    assert abs(np.corrcoef(found[0], other[0])[0, 1]) < 0.03


def test_without_noise_and_norm_it_is_no_channel():
    found, _ = arrived(made("dp:norm=1e30,multiplier=0"), np.zeros(5), CHANGES)
    np.testing.assert_array_equal(found, CHANGES)
    assert made("dp:multiplier=0").receive is channel.as_received


def test_the_norm_follows_the_quantile():
    """C <- C exp(-rate (b - quantile)), b of who reported; all are clipped."""
    chain = made("adaptive_clip:norm=0.3,quantile=0.7,rate=0.5")
    norm, state = 0.3, None
    for _ in range(4):
        found, state = arrived(chain, START, CHANGES, MASK, state)
        np.testing.assert_allclose(found, clipped(norm), atol=1e-5)
        short = (np.linalg.norm(CHANGES, axis=1) <= norm)[MASK > 0].mean()
        norm *= np.exp(-0.5 * (short - 0.7))
        assert float(state[0]) == pytest.approx(norm, rel=1e-5)
    for _ in range(60):
        _, state = arrived(chain, START, CHANGES, MASK, state)
    short = (np.linalg.norm(CHANGES, axis=1) <= float(state[0]))[MASK > 0].mean()
    assert short == pytest.approx(0.7, abs=0.15)
    _, same = arrived(chain, START, CHANGES, np.zeros(CLIENTS), state)
    assert float(same[0]) == float(state[0])


def test_two_noises_are_one_mechanism():
    """Andrew et al., Theorem 1: z^-2 = sum^-2 + (2 count)^-2."""
    for z, asked in [(1.0, 100.0), (0.5, 1000.0), (2.0, 8.0)]:
        count, of_sum = noises(z, jnp.float32(asked))
        assert float(of_sum) ** -2 + (2 * float(count)) ** -2 == pytest.approx(
            z**-2, rel=1e-4
        )
        assert float(count) == pytest.approx(max(asked / 20, z))


def test_an_adaptive_norm_with_noise_hides_share_and_sum():
    chain = made("adaptive_clip:norm=0.5,multiplier=2.0")
    zeros = np.zeros((CLIENTS, 20_000))
    found, state = arrived(chain, np.zeros(20_000), zeros)
    _, of_sum = noises(2.0, jnp.float32(CLIENTS))
    assert found[0].std() == pytest.approx(float(of_sum) * 0.5 / CLIENTS, rel=0.03)
    expected = 0.5 * np.exp(-0.2 * (1 - 0.5))  # all are short: without noise
    assert float(state[0]) != pytest.approx(expected, rel=1e-6)


def test_one_client_moves_the_noised_count_by_a_half():
    """The sensitivity for which `noises` accounts; the noise is the same in all."""
    chain = made("adaptive_clip:norm=0.5,rate=1,multiplier=2")
    everyone = np.ones(CLIENTS)
    _, (norm, *_) = arrived(chain, START, CHANGES, everyone)
    for client in range(CLIENTS):
        absent = np.where(np.arange(CLIENTS) == client, 0.0, 1.0)
        _, (without, *_) = arrived(chain, START, CHANGES, absent)
        moved = CLIENTS * abs(np.log(float(norm) / float(without)))
        assert moved == pytest.approx(0.5, rel=1e-4)
