import numpy as np

from pfljax.algorithms.local import local
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("local", bytes=(0, 0)),
]


def test_local_against_numpy():
    states, drawn = toy.run_quadratic(local)
    w = toy.flat(states[0].clients)
    assert (w == w[0]).all()
    for ids, state in zip(drawn, states[1:], strict=True):
        for k in ids:
            w[k] = toy.descend(w[k], lambda x, k=k: toy.gradient(k, x))
        np.testing.assert_allclose(toy.flat(state.clients), w, rtol=1e-5, atol=1e-5)
    assert states[-1].server == ()
