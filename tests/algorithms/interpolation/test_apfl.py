import jax
import numpy as np
import pytest

from pfljax.algorithms.interpolation.apfl import apfl
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("apfl", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("apfl", {"adaptive": False}, bytes=(toy.WHOLE, toy.WHOLE)),
]


@pytest.mark.parametrize("adaptive", [True, False])
def test_apfl_against_numpy(adaptive):
    states, drawn = toy.run_quadratic(apfl, alpha=0.3, adaptive=adaptive)
    w, v = toy.flat(states[0].server), toy.flat(states[0].clients.v)
    alpha = np.full(4, 0.3)
    for ids, state in zip(drawn, states[1:], strict=True):
        uploads = []
        for k in ids:
            own = w
            for _ in range(3):
                slope = toy.gradient(k, alpha[k] * v[k] + (1 - alpha[k]) * own)
                turned = slope @ (v[k] - own)
                own = own - toy.RATE * toy.gradient(k, own)
                v[k] = v[k] - toy.RATE * alpha[k] * slope
                if adaptive:
                    alpha[k] = np.clip(alpha[k] - toy.RATE * turned, 0, 1)
            uploads.append(own)
        w = np.mean(uploads, axis=0)
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)
        found = state.clients
        np.testing.assert_allclose(toy.flat(found.v), v, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found.alpha, alpha, rtol=1e-5)


def test_alpha_ends_at_the_border():
    """Where v is far worse than w, alpha falls to 0 and stays there."""
    task, local = toy.quadratic(), toy.full_batch()
    method = apfl(task, local, alpha=0.9)
    kept = method.init_client(toy.unflat(np.full(3, 50.0)), 0, None)
    w, data = toy.unflat(toy.B[2]), toy.one(toy.quadratic_clients(), 2)
    turn = toy.turn(jax.random.key(0), 0, 3)
    kept, _, _ = method.train(turn, w, kept, data)
    assert kept.alpha == 0
