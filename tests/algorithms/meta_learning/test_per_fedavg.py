from typing import get_args

import jax
import numpy as np
import pytest

from pfljax.algorithms.meta_learning.per_fedavg import Variant, per_fedavg
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("per_fedavg", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("per_fedavg", {"variant": "first_order"}, bytes=(toy.WHOLE, toy.WHOLE)),
    Case(
        "per_fedavg",
        {"variant": "hessian_free", "adapt": 2},
        bytes=(toy.WHOLE, toy.WHOLE),
    ),
]

INNER = 0.3


@pytest.mark.parametrize("variant", get_args(Variant))
def test_per_fedavg_against_numpy(variant):
    options = {"inner_lr": INNER, "variant": variant, "delta": 0.5}
    states, drawn = toy.run_quadratic(per_fedavg, **options)

    def meta(k, w):
        g = toy.gradient(k, w - INNER * toy.gradient(k, w))
        return g if variant == "first_order" else g - INNER * toy.A[k] * g

    w = toy.flat(states[0].server)
    for ids, state in zip(drawn, states[1:], strict=True):
        w = np.mean([toy.descend(w, lambda x, k=k: meta(k, x)) for k in ids], axis=0)
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("adapt", [0, 1, 3])
def test_a_client_is_evaluated_after_adaptation_on_all_its_examples(adapt):
    method = per_fedavg(toy.quadratic(), toy.full_batch(), inner_lr=INNER, adapt=adapt)
    turn = toy.turn(jax.random.key(0), 0, 1)
    data, w = toy.one(toy.noisy_clients(), 1), np.float32([1, 2, 3])
    evaluated = toy.flat(method.personal(turn, toy.unflat(w), (), data))
    b = np.asarray(data.examples.x[data.offset : data.offset + data.size, 1:])
    expected = toy.descend(w, lambda x: x - b.mean(0), adapt, INNER)
    np.testing.assert_allclose(evaluated, expected, rtol=1e-5, atol=1e-6)
