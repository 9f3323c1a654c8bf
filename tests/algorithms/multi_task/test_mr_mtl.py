import jax
import jax.numpy as jnp
import numpy as np

from pfljax.algorithms.multi_task.mr_mtl import mr_mtl
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("mr_mtl", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("mr_mtl", {"lam": 3.0}, bytes=(toy.WHOLE, toy.WHOLE)),
]

LAM = 0.7


def test_mr_mtl_against_numpy():
    states, drawn = toy.run_quadratic(mr_mtl, lam=LAM)
    w, x = toy.flat(states[0].server), toy.flat(states[0].clients).copy()
    for ids, state in zip(drawn, states[1:], strict=True):
        for k in ids:
            pulled = lambda v, k=k, w=w: toy.gradient(k, v) + LAM * (v - w)  # noqa: E731
            x[k] = toy.descend(x[k], pulled)
        w = np.average(x[ids], axis=0, weights=toy.COUNTS[ids])
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(toy.flat(state.clients), x, rtol=1e-5, atol=1e-5)


def test_who_takes_no_step_uploads_its_own_model():
    """Which is the origin of its change, and not the message."""
    method = mr_mtl(toy.quadratic(), toy.full_batch())
    w, x = toy.unflat([1.0, 2, 3]), toy.unflat([0.0, -1, 4])
    data = toy.one(toy.quadratic_clients(), 1)
    _, upload, _ = method.train(toy.turn(steps=0), w, x, data)
    toy.assert_same(upload, x)
    toy.assert_same(method.origin(w, x, upload), x)


def test_a_client_is_evaluated_at_its_own_model():
    method = mr_mtl(toy.quadratic(), toy.full_batch())
    w, x = toy.unflat([1.0, 2, 3]), toy.unflat([0.0, -1, 4])
    toy.assert_same(method.personal(toy.turn(), w, x, None), x)
    toy.assert_same(method.newcomer(toy.turn(), w, None), w)
    first = method.init_client(w, jnp.int32(2), jax.random.key(0))
    toy.assert_same(first, w)
