import numpy as np
import pytest

from pfljax.algorithms.global_model.fedprox import fedprox
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("fedprox", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("fedprox", {"prox": "norm", "finetune": 2}, bytes=(toy.WHOLE, toy.WHOLE)),
]

MU = 0.4


def norm_slope(shift):
    """Gradient of the sum over tensors of ||shift||, zero at zero."""
    parts = [shift[:2], shift[2:]]
    return np.concatenate([p / max(np.linalg.norm(p), 1e-30) for p in parts])


@pytest.mark.parametrize("prox", ["squared", "norm"])
def test_fedprox_against_numpy(prox):
    states, drawn = toy.quadratic_game(fedprox, mu=MU, prox=prox)
    w = toy.flat(states[0].server)
    for ids, state in zip(drawn, states[1:], strict=True):

        def slope(x, k, w=w):
            pull = x - w if prox == "squared" else norm_slope(x - w)
            return toy.gradient(k, x) + MU * pull

        uploads = [toy.descend(w, lambda x, k=k, f=slope: f(x, k)) for k in ids]
        w = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)


def test_an_unknown_penalty_names_the_known():
    with pytest.raises(ValueError, match="'squared', 'norm'"):
        toy.quadratic_game(fedprox, prox="cubed")
