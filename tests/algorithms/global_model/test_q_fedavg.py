import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.global_model.q_fedavg import q_fedavg
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("q_fedavg", bytes=(toy.WHOLE, toy.WHOLE + 4)),
    Case("q_fedavg", {"q": 0.1, "finetune": 2}, bytes=(toy.WHOLE, toy.WHOLE + 4)),
]

Q = 0.7


def test_q_fedavg_against_numpy():
    """Algorithm 2 of the paper, with L = 1 / rate."""
    states, drawn = toy.run_quadratic(q_fedavg, q=Q)
    w, L = toy.flat(states[0].server), 1 / toy.RATE
    for ids, state in zip(drawn, states[1:], strict=True):
        steps, lengths = [], []
        for k in ids:
            loss = toy.A[k] / 2 * np.sum((w - toy.B[k]) ** 2)
            w_k = toy.descend(w, lambda x, k=k: toy.gradient(k, x))
            change = L * (w - w_k)
            steps.append(loss**Q * change)
            lengths.append(Q * loss ** (Q - 1) * np.sum(change**2) + L * loss**Q)
        w = w - np.sum(steps, 0) / np.sum(lengths)
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_a_client_at_its_minimum_stays_there(rate):
    """Its loss is 0, and so are its steps; neither power of them may be infinite."""
    local = toy.full_batch(rate=rate)
    method = q_fedavg(toy.quadratic(), local, q=0.1)
    w, data = toy.unflat(toy.B[1]), toy.one(toy.quadratic_clients(), 1)
    _, upload, _ = method.train(toy.turn(), w, (), data)
    uploads = upload._replace(
        change={name: leaf[None] for name, leaf in upload.change.items()},
        h=jnp.asarray(upload.h)[None],
    )
    toy.assert_same(method.aggregate(w, uploads, toy.cohort([1])), w)
