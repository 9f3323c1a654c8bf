import jax
import numpy as np

from pfljax.algorithms.fedavg import fedavg
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("fedavg", bytes=(toy.WHOLE, toy.WHOLE)),
]


def test_fedavg_against_numpy():
    states, drawn = toy.run_quadratic(fedavg)
    w = toy.flat(states[0].server)
    for ids, state in zip(drawn, states[1:], strict=True):
        uploads = [toy.descend(w, lambda x, k=k: toy.gradient(k, x)) for k in ids]
        w = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)


def test_finetune_takes_steps_from_the_server_model_on_own_examples():
    method = fedavg(toy.quadratic(), toy.full_batch(), finetune=5)
    w = np.float32([1, 2, 3])
    turn = toy.turn(jax.random.key(0), 0, 3)
    data = toy.one(toy.quadratic_clients(), 2)
    tuned = toy.flat(method.personal(turn, toy.unflat(w), (), data))
    expected = toy.descend(w, lambda x: toy.gradient(2, x), steps=5)
    np.testing.assert_allclose(tuned, expected, rtol=1e-5)
