"""Attacks against NumPy, and who is malicious."""

import jax
import numpy as np
import pytest
from scipy.stats import norm

from pfljax import channel
from pfljax.core import malicious
from pfljax.data.label_noise import label_noise
from uplink import CLIENTS, KEY, arrived, made, state_of

RNG = np.random.default_rng(3)
CHANGES = RNG.normal(size=(CLIENTS, 6)).astype(np.float32)
START = RNG.normal(size=6).astype(np.float32)
BAD = np.asarray(malicious.draw(KEY, CLIENTS, 0.3))
ATTACKS = ("sign_flip", "random_update", "model_replacement", "alie", "ipm")


def test_a_share_of_the_clients_is_malicious_by_the_seed():
    assert BAD.sum() == 3
    other = np.asarray(malicious.draw(jax.random.key(1), CLIENTS, 0.3))
    assert (other != BAD).any()
    more = np.asarray(malicious.draw(KEY, CLIENTS, 0.6))
    assert more.sum() == 6
    assert more[BAD].all()  # those of a smaller share are among them
    for name in ATTACKS:
        state = state_of(channel.CHANNELS[name](attackers=0.3)())
        np.testing.assert_array_equal(state, BAD)


@pytest.mark.parametrize(("share", "who"), [(0.04, "nobody"), (0.96, "everybody")])
def test_shares_of_nobody_are_refused(share, who):
    with pytest.raises(
        ValueError, match=rf"attackers is {share}, which is {who} of 10"
    ):
        malicious.count(CLIENTS, share)


@pytest.mark.parametrize("name", ATTACKS)
def test_without_attackers_uploads_keep_their_bits(name):
    chain = made(f"{name}:attackers=0")
    assert chain.receive is channel.as_received
    sent, _ = arrived(chain, np.zeros(6), CHANGES)
    np.testing.assert_array_equal(sent, CHANGES)
    attacked, _ = arrived(made(f"{name}:attackers=0.3"), np.zeros(6), CHANGES)
    np.testing.assert_array_equal(attacked[~BAD], CHANGES[~BAD])
    assert (attacked[BAD] != CHANGES[BAD]).any(1).all()


def attacked(name):
    """The changes of the malicious behind an attack, from an origin that is not 0."""
    return arrived(made(name), START, CHANGES)[0][BAD]


def test_attacks_at_the_client_against_numpy():
    close = {"rtol": 1e-4, "atol": 1e-5}
    flipped = attacked("sign_flip:attackers=0.3,scale=2")
    np.testing.assert_allclose(flipped, -2 * CHANGES[BAD], **close)
    boosted = attacked("model_replacement:attackers=0.3")
    np.testing.assert_allclose(boosted, 4 * CHANGES[BAD], **close)  # a cohort of 4
    boosted = attacked("model_replacement:attackers=0.3,boost=7")
    np.testing.assert_allclose(boosted, 7 * CHANGES[BAD], **close)


def test_random_updates_are_as_long_as_changes():
    wide = RNG.normal(size=(CLIENTS, 5000)).astype(np.float32) * 0.1
    noise, _ = arrived(
        made("random_update:attackers=0.3,scale=3"), np.zeros(5000), wide
    )
    for one, change in zip(noise[BAD], wide[BAD], strict=True):
        assert one.std() == pytest.approx(3 * change.std(), rel=0.05)
        assert abs(np.corrcoef(one, change)[0, 1]) < 0.06
    assert abs(np.corrcoef(noise[BAD])[0, 1]) < 0.06


def test_ipm_and_alie_are_forged_from_the_honest():
    honest = CHANGES[~BAD]
    sent = attacked("ipm:attackers=0.3,scale=0.5")
    np.testing.assert_allclose(sent, np.tile(-0.5 * honest.mean(0), (3, 1)), atol=1e-5)
    sent = attacked("alie:attackers=0.3,z=1.5")
    wanted = honest.mean(0) - 1.5 * honest.std(0)
    np.testing.assert_allclose(sent, np.tile(wanted, (3, 1)), atol=1e-5)
    # n = 10, m = 3, s = floor(10 / 2 + 1) - 3 = 3: Phi(z) = (10 - 3 - 3) / 7
    z = norm.ppf((10 - 3 - 3) / (10 - 3))
    wanted = honest.mean(0) - z * honest.std(0)
    sent = attacked("alie:attackers=0.3")
    np.testing.assert_allclose(sent, np.tile(wanted, (3, 1)), atol=1e-5)


def test_who_does_not_report_is_not_forged_from():
    mask = np.ones(CLIENTS)
    (honest,) = np.nonzero(~BAD)
    mask[honest[:4]] = 0
    sent, _ = arrived(made("ipm:attackers=0.3,scale=1.0"), START, CHANGES, mask)
    wanted = -CHANGES[honest[4:]].mean(0)
    np.testing.assert_allclose(sent[BAD], np.tile(wanted, (3, 1)), atol=1e-5)


def test_an_attack_comes_before_clipping_whatever_the_order():
    for names in (("clip:norm=0.5", "sign_flip:attackers=0.3,scale=9"),):
        for order in (names, names[::-1]):
            sent, _ = arrived(made(*order), np.zeros(6), CHANGES)
            np.testing.assert_allclose(np.linalg.norm(sent, axis=1), 0.5, rtol=1e-5)
            cosine = (sent[BAD] * CHANGES[BAD]).sum(1)
            assert (cosine < 0).all()


@pytest.mark.slow
def test_a_robust_value_stands_an_attack_that_moves_the_mean():
    attack = "sign_flip:attackers=0.3,scale=100"
    drift = CHANGES * 0.1 + 1
    for reducer in (
        "median",
        "krum:byzantine=3",
        "geometric_median",
        "norm_clip",
        "centred_clip:radius=0.5,iterations=20",
        "trimmed_mean:trim=0.3",
    ):
        for names in ((attack, reducer), (reducer, attack)):
            sent, _ = arrived(made(*names), np.zeros(6), drift)
            assert np.linalg.norm(sent.mean(0) - 1) < 2.3
    sent, _ = arrived(made(attack), np.zeros(6), drift)
    assert np.linalg.norm(sent.mean(0) - 1) > 30


def test_poison_turns_the_same_clients_labels():
    turns = label_noise("poison:attackers=0.3", 4)
    np.testing.assert_allclose(turns.matrix, 0.25)
    assert turns.attackers == 0.3
    flipped = label_noise("poison:attackers=0.3", 2)
    np.testing.assert_array_equal(flipped.matrix, [[0, 1], [1, 0]])
