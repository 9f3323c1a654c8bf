import numpy as np

from pfljax.algorithms.global_model.fedprox import fedprox
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("fedprox", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("fedprox", {"finetune": 2}, bytes=(toy.WHOLE, toy.WHOLE)),
]

MU = 0.4


def test_fedprox_against_numpy():
    states, drawn = toy.quadratic_game(fedprox, mu=MU)
    w = toy.flat(states[0].server)
    for ids, state in zip(drawn, states[1:], strict=True):
        slope = lambda x, k, w=w: toy.gradient(k, x) + MU * (x - w)  # noqa: E731
        uploads = [toy.descend(w, lambda x, k=k, f=slope: f(x, k)) for k in ids]
        w = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)
