import numpy as np
import pytest

from pfljax import selection
from pfljax.algorithms.global_model.fedprox import fedprox
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("fedprox", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("fedprox", {"inexactness": True, "finetune": 2}, bytes=(toy.WHOLE, toy.WHOLE)),
]

MU = 0.4


def test_fedprox_against_numpy():
    states, drawn = toy.run_quadratic(fedprox, mu=MU)
    w = toy.flat(states[0].server)
    for ids, state in zip(drawn, states[1:], strict=True):
        slope = lambda x, k, w=w: toy.gradient(k, x) + MU * (x - w)  # noqa: E731
        uploads = [toy.descend(w, lambda x, k=k, f=slope: f(x, k)) for k in ids]
        w = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_gamma_against_numpy(steps):
    k, w = 2, np.array([1.0, -2, 3])
    method = fedprox(toy.quadratic(), toy.full_batch(), mu=MU, inexactness=True)
    data = toy.one(toy.quadratic_clients(), k)
    _, w_k, metrics = method.train(toy.turn(steps=steps), toy.unflat(w), (), data)
    found = toy.flat(w_k)
    left = toy.gradient(k, found) + MU * (found - w)
    expected = np.linalg.norm(left) / np.linalg.norm(toy.gradient(k, w))
    np.testing.assert_allclose(metrics["gamma"], expected, rtol=1e-5)
    assert (metrics["gamma"] == 1) == (steps == 0)


def test_gamma_of_an_exact_solution_is_zero():
    """Also of one that was there before, where 0 / 0 would be."""
    method = fedprox(toy.quadratic(), toy.full_batch(), mu=MU, inexactness=True)
    data = toy.one(toy.quadratic_clients(), 2)
    for w, steps in ((np.array([1.0, -2, 3]), 200), (toy.B[2], 3)):
        _, _, metrics = method.train(toy.turn(steps=steps), toy.unflat(w), (), data)
        np.testing.assert_allclose(metrics["gamma"], 0, atol=1e-5)


SELECTIONS = {
    # Uniform, with the mean by examples; by size with replacement, with the plain mean.
    "uniform": (selection.uniform(3, 4), lambda ids: toy.COUNTS[ids]),
    "by_size": (selection.by_size(3, toy.COUNTS), np.ones_like),
}


@pytest.mark.parametrize("scheme", SELECTIONS)
def test_both_schemes_against_numpy(scheme):
    """Sections 5.1 and appendix C.3.4: the cohort is drawn, and so it is averaged."""
    select, weight_of = SELECTIONS[scheme]
    task, local = toy.quadratic(), toy.full_batch()
    method = fedprox(task, local, mu=MU)
    train = toy.quadratic_clients()
    states, _ = toy.run_rounds(method, task, local, train, rounds=5, select=select)
    w, twice = toy.flat(states[0].server), False
    for state in states[1:]:
        ids = np.asarray(state.cohort)
        twice = twice or len(set(ids)) < len(ids)
        slope = lambda x, k, w=w: toy.gradient(k, x) + MU * (x - w)  # noqa: E731
        uploads = [toy.descend(w, lambda x, k=k, f=slope: f(x, k)) for k in ids]
        w = np.average(uploads, axis=0, weights=weight_of(ids))
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)
    assert twice == (scheme == "by_size")
