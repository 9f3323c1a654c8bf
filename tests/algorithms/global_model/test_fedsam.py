import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.global_model.fedsam import ascent, fedsam, scales
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("fedsam", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("fedsam", {"adaptive": True, "finetune": 2}, bytes=(toy.WHOLE, toy.WHOLE)),
]

RHO, ETA = 0.3, 0.2


@pytest.mark.parametrize(
    "adaptive", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_fedsam_against_numpy(adaptive):
    states, drawn = toy.run_quadratic(fedsam, rho=RHO, adaptive=adaptive, eta=ETA)

    def slope(k, v):
        scale = np.abs(v) + ETA if adaptive else 1.0
        here = toy.gradient(k, v)
        e = RHO * scale**2 * here / np.linalg.norm(scale * here)
        return toy.gradient(k, v + e)

    w = toy.flat(states[0].server)
    for ids, state in zip(drawn, states[1:], strict=True):
        uploads = [toy.descend(w, lambda v, k=k: slope(k, v)) for k in ids]
        w = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)


def test_a_step_on_a_quadratic_in_closed_form():
    """It multiplies w - b by 1 - rate a (1 + rho / ||w - b||)."""
    k, w = 2, np.array([1.0, -2, 3])
    method = fedsam(toy.quadratic(), toy.full_batch(), rho=RHO)
    data = toy.one(toy.quadratic_clients(), k)
    _, found, _ = method.train(toy.turn(), toy.unflat(w), (), data)
    away = w - toy.B[k]
    factor = 1 - toy.RATE * toy.A[k] * (1 + RHO / np.linalg.norm(away))
    np.testing.assert_allclose(toy.flat(found), toy.B[k] + factor * away, rtol=1e-5)


def test_without_a_slope_there_is_no_ascent():
    """Nor along running statistics, whose gradient is no slope."""
    slope = {"kernel": jnp.zeros(2), "batch_stats": {"mean": jnp.ones(2)}}
    scale = {"kernel": jnp.ones(2), "batch_stats": {"mean": jnp.ones(2)}}
    found = ascent(slope, scale, RHO)
    toy.assert_same(
        found, {"kernel": jnp.zeros(2), "batch_stats": {"mean": jnp.zeros(2)}}
    )


def test_biases_have_the_scale_one():
    layer = {"kernel": jnp.array([-3.0, 0.5]), "bias": jnp.array([-3.0])}
    found = scales(layer, 0.5)
    toy.assert_same(found, {"kernel": jnp.array([3.5, 1]), "bias": jnp.ones(1)})
