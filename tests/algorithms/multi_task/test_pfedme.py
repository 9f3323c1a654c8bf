import numpy as np

from pfljax.algorithms.multi_task.pfedme import pfedme
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("pfedme", bytes=(toy.WHOLE, toy.WHOLE)),
]

LAM, RATE, BETA = 2.0, 0.05, 0.7


def test_pfedme_against_numpy():
    options = {"lam": LAM, "inner_lr": RATE, "inner_steps": 4, "beta": BETA}
    states, drawn = toy.run_quadratic(pfedme, **options)
    w, theta = toy.flat(states[0].server), toy.flat(states[0].clients)
    for ids, state in zip(drawn, states[1:], strict=True):
        uploads = []
        for k in ids:
            own, near = w, w
            for _ in range(3):
                pulled = lambda x, k=k, own=own: (  # noqa: E731
                    toy.gradient(k, x) + LAM * (x - own)
                )
                near = toy.descend(near, pulled, 4, RATE)
                own = own - toy.RATE * LAM * (own - near)
            theta[k] = near
            uploads.append(own)
        w = (1 - BETA) * w + BETA * np.mean(uploads, axis=0)
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)
        found = toy.flat(state.clients)
        np.testing.assert_allclose(found, theta, rtol=1e-5, atol=1e-5)
