import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.global_model.afl import Server, Upload, afl
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("afl", bytes=(toy.WHOLE, toy.WHOLE + 4)),
    Case("afl", {"average": False, "finetune": 2}, bytes=(toy.WHOLE, toy.WHOLE + 4)),
]

RATE = 0.05


def project(v):
    """The nearest point of the simplex, by bisection of what is taken from all."""
    low, high = v.min() - 1, v.max()
    for _ in range(100):
        middle = (low + high) / 2
        if np.maximum(v - middle, 0).sum() > 1:
            low = middle
        else:
            high = middle
    return np.maximum(v - middle, 0)


def test_afl_against_numpy():
    """Absent clients count by C / |S| of those who report; some weight becomes 0."""
    states, drawn = toy.run_quadratic(afl, rounds=4, weight_lr=RATE)
    w, weights, models = toy.flat(states[0].server.w), np.full(4, 1 / 4), []
    for ids, state in zip(drawn, states[1:], strict=True):
        loss = np.zeros(4)
        loss[ids] = [toy.A[k] / 2 * np.sum((w - toy.B[k]) ** 2) for k in ids]
        uploads = [toy.descend(w, lambda x, k=k: toy.gradient(k, x)) for k in ids]
        w = np.average(uploads, axis=0, weights=weights[ids])
        weights = project(weights + RATE * 4 / 3 * loss)
        models.append(w)
        for found, expected in (
            (state.server.w, w), (state.server.mean, np.mean(models, 0))
        ):  # fmt: skip
            np.testing.assert_allclose(toy.flat(found), expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state.server.weights, weights, atol=1e-6)
    assert 0 in weights
    assert (weights > 0).sum() > 1


@pytest.mark.slow
def test_clients_without_weight_do_not_move_the_server():
    w, other = toy.unflat([1.0, 2, 3]), toy.unflat([[9.0, 9, 9]])
    server = Server(w, jnp.array([0.0, 1, 0, 0]), w)
    method = afl(toy.quadratic(), toy.full_batch(), weight_lr=0.0)
    after = method.aggregate(server, Upload(other, jnp.ones(1)), toy.cohort([1]))
    toy.assert_same(after.w, w)


def test_every_client_is_evaluated_with_the_mean_or_the_last_model():
    server = Server(toy.unflat([1.0, 2, 3]), jnp.ones(4) / 4, toy.unflat([0.0, 1, 2]))
    for average, model in ((True, server.mean), (False, server.w)):
        method = afl(toy.quadratic(), toy.full_batch(), average=average)
        toy.assert_same(method.server_model(server), model)
        toy.assert_same(method.message(toy.turn(), server, ()), server.w)
