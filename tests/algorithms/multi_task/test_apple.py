import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.multi_task.apple import Server, apple, fading
from pfljax.conformance import Case, toy

CLIENTS = 8  # of the toy: all their cores and 8 weights down, one core and 8 up
CONFORMANCE = [
    Case("apple", bytes=(CLIENTS * (toy.WHOLE + 4), toy.WHOLE + CLIENTS * 4)),
]

TASK = toy.quadratic()
KEY = jax.random.key(0)
LR, MU, ROUNDS, SPAN = 0.01, 0.8, 5, 0.6


def test_apple_against_numpy():
    options = {"weight_lr": LR, "mu": MU, "span": SPAN}
    shares = np.array([1, 2, 3, 2]) / 8
    factory = functools.partial(apple, rounds=ROUNDS, sizes=(1, 2, 3, 2))
    states, drawn = toy.run_quadratic(factory, rounds=ROUNDS, **options)
    cores, p = toy.flat(states[0].clients).astype(np.float64), np.tile(shares, (4, 1))
    for number, (ids, state) in enumerate(zip(drawn, states[1:], strict=True)):
        begun = cores.copy()
        # Of three rounds, and none after them.
        pull = MU * (np.cos(np.pi * number / 3) + 1) / 2 if number < 3 else 0
        for k in ids:
            own, weights = begun.copy(), p[k].copy()
            for _ in range(3):
                slope = toy.gradient(k, weights @ own)
                slope_p = own @ slope + pull * (weights - shares)
                own[k] -= toy.RATE * weights[k] * slope
                weights -= LR * slope_p
            cores[k], p[k] = own[k], weights
        for known in (state.server.cores, state.clients):
            found = toy.flat(known)
            np.testing.assert_allclose(found, cores, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state.server.p, p, rtol=1e-4, atol=1e-5)
    personal = apple(TASK, toy.full_batch()).personal
    for k in range(4):
        own = jax.tree.map(lambda leaf, k=k: leaf[k], states[-1].clients)
        evaluated = personal(toy.turn(client_id=k), states[-1].server, own, ())
        np.testing.assert_allclose(
            toy.flat(evaluated), p[k] @ cores, rtol=1e-4, atol=1e-5
        )


def test_a_client_of_no_run_has_the_weighted_mean_of_the_cores():
    cores = np.arange(12.0).reshape(4, 3)
    server = Server(toy.unflat(cores), jnp.zeros((4, 4)))
    shares = np.array([1, 2, 3, 2]) / 8
    method = apple(TASK, toy.full_batch(), sizes=(1, 2, 3, 2))
    turn, own = toy.turn(client_id=4), toy.unflat(np.full(3, 99.0))
    evaluated = method.personal(turn, server, own, ())
    np.testing.assert_allclose(toy.flat(evaluated), shares @ cores, rtol=1e-6)
    message = method.message(turn, server, own)
    np.testing.assert_array_equal(message.p, shares)


def test_the_pull_fades_over_the_span():
    found = [float(fading(jnp.int32(r), 4.0)) for r in range(6)]
    half = 2**0.5 / 4
    np.testing.assert_allclose(found, [1, 0.5 + half, 0.5, 0.5 - half, 0, 0], atol=1e-6)
    assert fading(jnp.int32(1), 0.0) == 0


def test_a_span_above_one_is_refused():
    with pytest.raises(ValueError, match=r"^apple: span is 2\.0; expected"):
        apple(TASK, toy.full_batch(), span=2.0)
