import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.global_model.fedcl import Server, fedcl
from pfljax.algorithms.global_model.fedprox import fedprox
from pfljax.conformance import Case, toy
from pfljax.core.types import ClientData, Examples

# The importance is as large as the model, or has a number for each of its four tensors.
TENSORS = 4 * 4
CONFORMANCE = [
    Case("fedcl", bytes=(2 * toy.WHOLE, toy.WHOLE)),
    Case(
        "fedcl",
        {"importance": "tensors", "finetune": 2},
        bytes=(toy.WHOLE + TENSORS, toy.WHOLE),
    ),
]

LAM = 0.3
TASK = toy.quadratic()
LOCAL = toy.full_batch()
CURVATURE = np.array([1.0, 0.5, 2.0])  # of the server's examples
MINIMA = np.array([[0.0, 1, 1], [2, -1, 0], [1, 1, -2]])


def public():
    x = jnp.asarray(np.c_[CURVATURE, MINIMA], jnp.float32)
    pool = Examples(x, jnp.zeros(3, jnp.int32))
    return ClientData(pool, jnp.int32(0), jnp.int32(3))


def importance_of(w, kind):
    """Of each of the three parameters; two of them are one tensor."""
    slopes = CURVATURE[:, None] * (w - MINIMA)
    if kind == "elements":
        return (slopes**2).mean(0)
    square = slopes.mean(0) ** 2 / 3
    return np.array([square[:2].sum()] * 2 + [square[2]])


@pytest.mark.parametrize(
    "kind", ["elements", pytest.param("tensors", marks=pytest.mark.slow)]
)
def test_fedcl_against_numpy(kind):
    method = fedcl(TASK, LOCAL, lam=LAM, importance=kind, num_public=3)
    states, _ = toy.run_rounds(
        method, TASK, LOCAL, toy.quadratic_clients(), cohort=3, public=public()
    )
    w, omega = toy.flat(states[0].server.w), np.zeros(3)
    for state in states[1:]:
        ids = np.asarray(state.cohort)
        slope = lambda v, k, w=w, omega=omega: (  # noqa: E731
            toy.gradient(k, v) + 2 * LAM * omega * (v - w)
        )
        uploads = [toy.descend(w, lambda v, k=k, f=slope: f(v, k)) for k in ids]
        w = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        omega = importance_of(w, kind)
        np.testing.assert_allclose(toy.flat(state.server.w), w, rtol=1e-5, atol=1e-5)
        found = np.concatenate(
            [
                np.broadcast_to(leaf, size)
                for leaf, size in zip(
                    jax.tree.leaves(state.server.omega), (2, 1), strict=True
                )
            ]
        )
        np.testing.assert_allclose(found, omega, rtol=1e-5)


def test_equal_importance_is_fedprox():
    """Of mu = 2 lam c."""
    w, data = toy.unflat([1.0, -2, 3]), toy.one(toy.quadratic_clients(), 1)
    message = Server(w, toy.unflat(np.full(3, 0.4)))
    turn = toy.turn(steps=3)
    _, found, _ = fedcl(TASK, LOCAL, lam=LAM).train(turn, message, (), data)
    wanted = fedprox(TASK, LOCAL, mu=2 * LAM * 0.4).train(turn, w, (), data)[1]
    toy.assert_close(found, wanted, 1e-6)


def test_a_server_without_examples_is_refused():
    with pytest.raises(ValueError, match="fedcl needs examples at the server, and"):
        fedcl(TASK, LOCAL, num_public=0)
