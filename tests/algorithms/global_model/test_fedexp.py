import numpy as np
import pytest

from pfljax.algorithms.global_model.fedexp import Server, fedexp
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("fedexp", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("fedexp", {"eps": 0.1, "finetune": 2}, bytes=(toy.WHOLE, toy.WHOLE)),
]

EPS = 0.01


def test_fedexp_against_numpy():
    states, drawn = toy.run_quadratic(fedexp, rounds=6, eps=EPS)
    w, factors = toy.flat(states[0].server.w), []
    for ids, state in zip(drawn, states[1:], strict=True):
        changes = [toy.descend(w, lambda x, k=k: toy.gradient(k, x)) - w for k in ids]
        mean = np.mean(changes, 0)
        whole = 2 * len(ids) * (np.sum(mean**2) + EPS)
        factors.append(max(1, np.sum(np.square(changes)) / whole))
        before, w = w, w + factors[-1] * mean
        np.testing.assert_allclose(toy.flat(state.server.w), w, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(toy.flat(state.server.before), before, atol=1e-5)
    # Both sides of the maximum.
    assert min(factors) == 1 < max(factors)


@pytest.mark.parametrize(
    ("changes", "factor"),
    [
        (np.eye(3), 1.5),  # orthogonal, of equal length: M / 2
        (np.ones((3, 3)), 1),  # equal
        (np.zeros((3, 3)), 1),
    ],
)
def test_the_step_without_eps(changes, factor):
    w = np.array([1.0, 2, 3])
    method = fedexp(toy.quadratic(), toy.full_batch(), eps=0.0)
    server = Server(toy.unflat(w), toy.unflat(np.zeros(3)))
    # The last of the four does not report.
    uploads = toy.unflat(np.concatenate([changes, [[9.0, 9, 9]]]))
    after = method.aggregate(server, uploads, toy.cohort([1, 1, 1, 0]))
    wanted = w + factor * changes.mean(0)
    np.testing.assert_allclose(toy.flat(after.w), wanted, rtol=1e-6)
    toy.assert_same(after.before, server.w)
    half = toy.flat(method.server_model(after))
    np.testing.assert_allclose(half, (w + wanted) / 2, rtol=1e-6)
