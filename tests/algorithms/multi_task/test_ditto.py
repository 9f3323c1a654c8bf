import numpy as np
import pytest

from pfljax.algorithms.multi_task.ditto import ditto
from pfljax.conformance import Case, toy
from pfljax.core.types import Local

CONFORMANCE = [
    Case("ditto", bytes=(toy.WHOLE, toy.WHOLE)),
    Case("ditto", {"personal_epochs": 3}, bytes=(toy.WHOLE, toy.WHOLE)),
]

LAM = 0.7


def test_ditto_against_numpy():
    personal_epochs = 5
    options = {"lam": LAM, "personal_epochs": personal_epochs}
    states, drawn = toy.run_quadratic(ditto, **options)
    w, v = toy.flat(states[0].server), toy.flat(states[0].clients)
    assert (v == w).all()
    steps = personal_epochs or 3
    for ids, state in zip(drawn, states[1:], strict=True):
        for k in ids:
            pulled = lambda x, k=k, w=w: toy.gradient(k, x) + LAM * (x - w)  # noqa: E731
            v[k] = toy.descend(v[k], pulled, steps)
        uploads = [toy.descend(w, lambda x, k=k: toy.gradient(k, x)) for k in ids]
        w = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        np.testing.assert_allclose(toy.flat(state.server), w, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(toy.flat(state.clients), v, rtol=1e-5, atol=1e-5)


def test_a_client_is_evaluated_at_its_own_model():
    method = ditto(toy.quadratic(), toy.full_batch())
    w, v = toy.unflat([1.0, 2, 3]), toy.unflat([0.0, -1, 4])
    toy.assert_same(method.personal(toy.turn(), w, v, None), v)
    toy.assert_same(method.newcomer(toy.turn(), w, None), w)


def test_personal_epochs_need_epochs():
    local = Local(0.1, batch_size=4, epochs=None, steps=3)
    method = ditto(toy.quadratic(), local, personal_epochs=2)
    with pytest.raises(ValueError, match="give epochs instead of steps"):
        toy.run_rounds(method, toy.quadratic(), local, toy.quadratic_clients(), 1)
