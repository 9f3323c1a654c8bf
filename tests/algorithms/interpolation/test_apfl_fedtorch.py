import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.interpolation.apfl_fedtorch import apfl_fedtorch
from pfljax.conformance import Case, toy
from pfljax.core.types import Batch

CONFORMANCE = [
    Case("apfl_fedtorch", bytes=(toy.WHOLE, toy.WHOLE)),
]


def slope_of_mixed_logits(k, model):
    """Gradient of the cross-entropy of class 0 by the logits' mixture."""
    logits = toy.B[k] * model
    chance = np.exp(logits) / np.exp(logits).sum()
    return (chance - np.array([1, 0, 0])) * toy.B[k]


@pytest.mark.parametrize("adaptive", [True, False])
def test_apfl_fedtorch_against_numpy(adaptive):
    states, drawn = toy.quadratic_game(apfl_fedtorch, alpha=0.3, adaptive=adaptive)
    w, v = toy.flat(states[0].server), toy.flat(states[0].clients.v)
    alpha = np.full(4, 0.3)
    for ids, state in zip(drawn, states[1:], strict=True):
        uploads = []
        for k in ids:
            own = w
            for step in range(3):
                own = own - toy.RATE * toy.gradient(k, own)
                a = alpha[k]
                slope = slope_of_mixed_logits(k, a * v[k] + (1 - a) * own)
                turned = a * (a * slope) + (1 - a) * ((1 - a) * slope)
                v[k] = v[k] - toy.RATE * a * slope
                if adaptive and step == 0:
                    moved = (v[k] - own) @ turned + 0.02 * a
                    alpha[k] = np.clip(a - toy.RATE * moved, 0, 1)
            uploads.append(own)
        w = np.mean(uploads, axis=0)
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)
        kept = state.clients
        np.testing.assert_allclose(toy.flat(kept.v), v, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(kept.alpha, alpha, rtol=1e-5)


def test_a_client_is_judged_by_mixed_logits():
    task = toy.quadratic()
    method = apfl_fedtorch(task, toy.full_batch(), alpha=0.25)
    w, v = toy.unflat([1.0, 2, 3]), toy.unflat([0.0, 4, 1])
    batch = Batch.of_rows(jnp.ones((2, 4)))
    kept = method.init_client(v, 0, None)
    newcomer, own = method.newcomer(None, w, None), method.personal(None, w, kept, None)
    for model, share in ((newcomer, 0.0), (own, 0.25)):
        expected = (1 - share) * task.predict(w, batch) + share * task.predict(v, batch)
        np.testing.assert_allclose(method.predict(model, batch), expected)


def test_alpha_out_of_range_is_refused():
    with pytest.raises(ValueError, match="0 <= alpha <= 1"):
        apfl_fedtorch(toy.quadratic(), toy.full_batch(), alpha=1.5)
