import jax
import numpy as np

from pfljax.algorithms.global_model.feddyn import feddyn
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("feddyn", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("feddyn", {"alpha": 0.3, "finetune": 2}, bytes=(toy.WHOLE, toy.WHOLE)),
]

ALPHA = 0.4


def test_feddyn_against_numpy():
    states, drawn = toy.run_quadratic(feddyn, alpha=ALPHA)
    w, h, g = toy.flat(states[0].server.w), np.zeros(3), np.zeros((4, 3))
    for ids, state in zip(drawn, states[1:], strict=True):
        uploads = []
        for k in ids:
            slope = lambda v, k=k, w=w: (  # noqa: E731
                toy.gradient(k, v) - g[k] + ALPHA * (v - w)
            )
            uploads.append(toy.descend(w, slope))
        for k, w_k in zip(ids, uploads, strict=True):
            g[k] = g[k] - ALPHA * (w_k - w)
        # h as Algorithm 1 has it, which the method keeps over alpha.
        h = h - ALPHA / 4 * np.sum(np.array(uploads) - w, 0)
        w = np.mean(uploads, 0) - h / ALPHA
        for found, expected in (
            (state.server.w, w), (state.server.h, h / ALPHA), (state.clients, g)
        ):  # fmt: skip
            np.testing.assert_allclose(toy.flat(found), expected, rtol=1e-5, atol=1e-5)


def test_after_an_exact_solution_the_state_is_the_slope_there():
    """First-order condition: g_k = grad F_k(w_k), whatever it was."""
    k, w, before = 2, np.array([1.0, -2, 3]), np.array([0.5, 0.1, -1])
    method = feddyn(toy.quadratic(), toy.full_batch(), alpha=ALPHA)
    data = toy.one(toy.quadratic_clients(), k)
    turn = toy.turn(jax.random.key(0), 0, 200)
    g, w_k, _ = method.train(turn, toy.unflat(w), toy.unflat(before), data)
    slope = toy.gradient(k, toy.flat(w_k))
    np.testing.assert_allclose(toy.flat(g), slope, atol=1e-4)


def test_a_client_without_steps_keeps_its_slope():
    method = feddyn(toy.quadratic(), toy.full_batch(), alpha=ALPHA)
    data, g = toy.one(toy.quadratic_clients(), 1), toy.unflat([0.1, -0.4, 0.2])
    found, *_ = method.train(toy.turn(steps=0), toy.unflat([1.0, 2, 3]), g, data)
    toy.assert_same(found, g)


def test_the_server_model_of_those_who_rest_counts():
    """h takes |S| / C of the mean change: one of four clients, a quarter."""
    method = feddyn(toy.quadratic(), toy.full_batch(), alpha=ALPHA)
    server = method.init(toy.unflat([1.0, 2, 3]), 4, jax.random.key(0))
    uploads = jax.tree.map(lambda leaf: leaf[None] + 4, server.w)
    after = method.aggregate(server, uploads, toy.cohort([1]))
    np.testing.assert_allclose(toy.flat(after.h), [-1, -1, -1], rtol=1e-6)
    np.testing.assert_allclose(toy.flat(after.w), [6, 7, 8], rtol=1e-6)
