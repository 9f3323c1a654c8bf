import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.interpolation.l2gd import Server, l2gd
from pfljax.conformance import Case, toy

BYTES = (toy.WHOLE + 2, toy.WHOLE)  # a model and two coins down
CONFORMANCE = [Case("l2gd", bytes=BYTES)]
LAM, P = 0.8, 0.4
PULL = toy.RATE * LAM * (1 - P) / P


def test_l2gd_against_numpy():
    """Three of four clients take part; coins are drawn apart from what they decide."""
    states, drawn = toy.run_quadratic(l2gd, rounds=8, lam=LAM, p=P)
    x = toy.flat(states[0].clients)
    coins = [bool(state.server.coin) for state in states]
    assert {False, True} == set(coins[:-1])
    for coin, ids, state in zip(coins, drawn, states[1:], strict=False):
        z = x.mean(0)
        for k in ids:
            if coin:
                x[k] = x[k] - PULL * (x[k] - z)
            else:
                x[k] = toy.descend(x[k], lambda w, k=k: toy.gradient(k, w))
        np.testing.assert_allclose(toy.flat(state.clients), x, rtol=1e-5, atol=1e-5)
        mean = toy.flat(state.server.z)
        np.testing.assert_allclose(mean, x.mean(0), rtol=1e-5, atol=1e-5)


def turned(method, coin, x, z, k, last_coin=True, steps=1):
    """(x_k, upload, metrics) of client k after a round of this coin."""
    server = Server(toy.unflat(z), jnp.bool_(coin), jnp.bool_(last_coin))
    data, turn = toy.one(toy.quadratic_clients(), k), toy.turn(steps=steps)
    return method.train(turn, server, toy.unflat(x), data)


@pytest.mark.slow
def test_the_minimum_is_where_the_mean_step_rests():
    """a_k (x_k - b_k) + lam (x_k - z) = 0, where z is the mean of x_k."""
    method = l2gd(toy.quadratic(), toy.full_batch(epochs=1), lam=LAM, p=P)
    share = toy.A / (toy.A + LAM)
    z = share @ toy.B / share.sum()
    x = (toy.A[:, None] * toy.B + LAM * z) / (toy.A + LAM)[:, None]
    np.testing.assert_allclose(x.mean(0), z)
    for k in range(4):
        trained, pulled = (toy.flat(turned(method, c, x[k], z, k)[0]) for c in (0, 1))
        assert np.abs(trained - x[k]).max() > 1e-2
        np.testing.assert_allclose((1 - P) * trained + P * pulled, x[k], atol=1e-6)


def test_a_model_is_sent_where_the_coin_turns_to_one():
    method = l2gd(toy.quadratic(), toy.full_batch(), lam=LAM, p=P)
    x, z = toy.B[1], np.ones(3)
    for coin in (False, True):
        for last_coin in (False, True):
            _, _, metrics = turned(method, coin, x, z, 1, last_coin)
            expected = 3 * 4 if coin and not last_coin else 0
            assert float(metrics["sent_bytes"]) == expected
            assert float(metrics["received_bytes"]) == expected


def test_coins_are_independent_of_probability_p():
    """Of 4000 rounds: p (1 - p) of them send, within three standard deviations."""
    method = l2gd(toy.quadratic(), toy.full_batch(), lam=LAM, p=P)
    server = method.init(toy.unflat(np.ones(3)), 4, jax.random.key(0))
    assert bool(server.last_coin)
    uploads = jax.tree.map(lambda leaf: leaf[None] * 0, server.z)

    def step(server, key):
        after = method.aggregate(server, uploads, toy.cohort([1.0])._replace(key=key))
        return after, after.coin & ~after.last_coin

    keys = jax.random.split(jax.random.key(1), 4000)
    _, sends = jax.lax.scan(step, server, keys)
    assert float(sends.mean()) == pytest.approx(P * (1 - P), abs=3 * 0.0075)


def test_the_loss_of_a_round_without_steps_is_of_the_examples():
    method = l2gd(toy.quadratic(), toy.full_batch(), lam=LAM, p=P)
    x = np.float32([1, -2, 3])
    _, _, metrics = turned(method, True, x, np.ones(3), 1)
    wanted = toy.A[1] / 2 * ((x - toy.B[1]) ** 2).sum()
    assert float(metrics["loss"]) == pytest.approx(wanted, rel=1e-5)


def test_who_has_no_step_sends_nothing_new():
    method = l2gd(toy.quadratic(), toy.full_batch(), lam=LAM, p=P)
    for coin in (False, True):
        x, upload, _ = turned(method, coin, toy.B[1], np.ones(3), 1, steps=0)
        np.testing.assert_array_equal(toy.flat(x), np.float32(toy.B[1]))
        np.testing.assert_array_equal(toy.flat(upload), 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": 0.0}, r"p is 0\.0; expected a number > 0 and below 1"),
        ({"p": 1.0}, r"p is 1\.0; expected a number > 0 and below 1"),
        ({"lam": -1.0}, r"lam is -1\.0; expected a finite number >= 0"),
        (
            {"lam": 9.0, "p": 0.3},
            r"\(1 - p\) / p is 2\.1\d*; expected at most 1",
        ),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        l2gd(toy.quadratic(), toy.full_batch(), **options)
