from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.interpolation.superfed import Client, superfed
from pfljax.conformance import Case, toy
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.losses import proximal
from pfljax.core.tree import square_cosine

CONFORMANCE = [
    Case("superfed", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("superfed", {"mixing": "layer"}, bytes=(toy.WHOLE, toy.WHOLE)),
]

MU, NU = 0.2, 1.5


def cosine_slopes(a, b):
    """Gradients of cos^2(a, b) by a and by b, as the method card derives them."""
    p, q = np.linalg.norm(a), np.linalg.norm(b)
    c = a @ b / (p * q)
    return 2 * c * (b / q - c * a / p) / p, 2 * c * (a / p - c * b / q) / q


def draws(state, k, mixing, steps):
    """The lambda of every step, one for each of the three coordinates."""
    noise = derive(toy.turn_key(state, k), "noise")
    keys = [derive(jax.random.fold_in(noise, s), "lambda") for s in range(steps)]
    if mixing == "model":
        return [np.full(3, jax.random.uniform(key)) for key in keys]
    return [np.asarray(jax.random.uniform(key, (2,)))[[0, 0, 1]] for key in keys]


def mixed_training(w, v, k, lambdas):
    f = w
    for t in lambdas:
        slope = toy.gradient(k, (1 - t) * f + t * v)
        by_f, by_v = cosine_slopes(f, v)
        step_f = (1 - t) * slope + 2 * MU * (f - w) + NU * by_f
        f, v = f - toy.RATE * step_f, v - toy.RATE * (t * slope + NU * by_v)
    return f, v


@pytest.mark.parametrize("mixing", ["model", "layer"])
def test_superfed_against_numpy(mixing):
    """Rounds 0 and 1 are FedProx of 2 mu, and v rests; then both models are mixed."""
    states, drawn = toy.run_quadratic(
        partial(superfed, rounds=4), 4, mixing=mixing, mu=MU, nu=NU, start=0.5
    )
    w, v = toy.flat(states[0].server), toy.flat(states[0].clients.v)
    for ids, before, after in zip(drawn, states, states[1:], strict=False):
        uploads = []
        for k in ids:
            near = lambda x, k=k, w=w: toy.gradient(k, x) + 2 * MU * (x - w)  # noqa: E731
            if before.round < 2:
                uploads.append(toy.descend(w, near))
                continue
            f, v[k] = mixed_training(w, v[k], k, draws(before, k, mixing, 3))
            uploads.append(f)
        if before.round < 2:
            toy.assert_same(after.clients.v, before.clients.v)
        w = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        np.testing.assert_allclose(toy.flat(after.server), w, rtol=1e-5, atol=2e-5)
        np.testing.assert_allclose(toy.flat(after.clients.v), v, rtol=1e-5, atol=2e-5)


def test_every_local_model_has_its_own_seed():
    states, _ = toy.run_quadratic(superfed, rounds=0)
    v = toy.flat(states[0].clients.v)
    assert len(np.unique(v, axis=0)) == 4
    assert np.abs(v - toy.flat(states[0].server)).min() > 0


def test_gradient_of_the_square_cosine_is_the_cards_formula():
    a, b = np.random.default_rng(0).normal(size=(2, 3))
    found = jax.grad(square_cosine, (0, 1))(toy.unflat(a), toy.unflat(b))
    for one, expected in zip(found, cosine_slopes(a, b), strict=True):
        np.testing.assert_allclose(toy.flat(one), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("v", [[1.0, 2, 3], [0.0, 0, 0], [-1.0, 5, 2]])
def test_gradients_are_finite_where_models_meet(v):
    w = toy.unflat([1.0, 2, 3])

    def objective(pair):
        return proximal(w, 1.0)(pair[0]) + square_cosine(*pair)

    value, slopes = jax.value_and_grad(objective)((w, toy.unflat(v)))
    assert np.isfinite(value)
    assert all(np.isfinite(toy.flat(slope)).all() for slope in slopes)
    if v == [1.0, 2, 3]:  # the symmetric saddle
        assert max(np.abs(toy.flat(slope)).max() for slope in slopes) < 1e-6


def test_a_client_is_evaluated_with_w_and_once_mixed_at_one_half_of_its_path():
    method = superfed(toy.quadratic(), toy.full_batch(), start=0.5, rounds=10)
    w, v = toy.unflat([0.0, 2, 4]), toy.unflat([1.0, 0, 0])
    for finished, expected in ((5, [0.0, 2, 4]), (6, [0.5, 1, 2])):
        turn = toy.turn(jax.random.key(0), finished, 1)
        evaluated = method.personal(turn, w, Client(v, jnp.bool_(True)), None)
        np.testing.assert_allclose(toy.flat(evaluated), expected)
    toy.assert_same(method.endpoints(w, Client(v, jnp.bool_(True))), (w, v))
    assert float(tree.dot(w, v)) == 0
