import jax
import numpy as np
import pytest

from pfljax.algorithms.meta_learning.reptile import reptile
from pfljax.conformance import Case, toy

BOTH = (toy.WHOLE, toy.WHOLE)
CONFORMANCE = [
    Case("reptile", bytes=BOTH),
    Case(
        "reptile",
        {"server_optimizer": "adam", "server_lr": 0.01, "finetune": 2},
        bytes=BOTH,
    ),
]


class Adam:
    """Kingma and Ba, 2015, Algorithm 1."""

    def __init__(self):
        self.t, self.m, self.v = 0, 0.0, 0.0

    def __call__(self, slope):
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * slope
        self.v = 0.999 * self.v + 0.001 * slope**2
        mean = self.m / (1 - 0.9**self.t)
        return mean / (np.sqrt(self.v / (1 - 0.999**self.t)) + 1e-8)


@pytest.mark.parametrize(
    ("name", "step"), [("sgd", lambda slope: slope), ("adam", Adam())]
)
def test_reptile_against_numpy(name, step):
    options = {"server_lr": 0.4, "server_optimizer": name}
    states, drawn = toy.run_quadratic(reptile, **options)
    w = toy.flat(states[0].server.w)
    for ids, state in zip(drawn, states[1:], strict=True):
        trained = [toy.descend(w, lambda x, k=k: toy.gradient(k, x)) for k in ids]
        w = w - 0.4 * step(w - np.mean(trained, axis=0))
        found = toy.flat(state.server.w)
        np.testing.assert_allclose(found, w, rtol=1e-4, atol=1e-5)


def test_a_client_is_evaluated_before_and_after_fine_tuning():
    method = reptile(toy.quadratic(), toy.full_batch(), finetune=2)
    w, data = np.float32([1, -2, 3]), toy.one(toy.quadratic_clients(), 1)
    server = method.init(toy.unflat(w), 4, jax.random.key(0))
    np.testing.assert_array_equal(toy.flat(method.server_model(server)), w)
    evaluated = method.personal(toy.turn(), server, (), data)
    tuned = toy.descend(w, lambda x: toy.gradient(1, x), steps=2)
    np.testing.assert_allclose(toy.flat(evaluated), tuned, rtol=1e-5)


def test_a_wrong_server_is_refused():
    task, local = toy.quadratic(), toy.full_batch()
    with pytest.raises(ValueError, match=r"server_lr is 0.0; expected a finite"):
        reptile(task, local, server_lr=0.0)
    with pytest.raises(ValueError, match=r"'fedyoga'.* did you mean 'fedyogi'"):
        reptile(task, local, server_optimizer="fedyoga")
