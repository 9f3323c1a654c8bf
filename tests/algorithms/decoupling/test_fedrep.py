import numpy as np
import pytest

from pfljax.algorithms.decoupling.fedrep import fedrep
from pfljax.conformance import Case, toy
from pfljax.core.types import Local

CONFORMANCE = [
    Case("fedrep", bytes=(toy.BODY, toy.BODY)),
]


@pytest.mark.parametrize("head_epochs", [None, pytest.param(5, marks=pytest.mark.slow)])
def test_fedrep_against_numpy(head_epochs):
    """First the head (third coordinate) descends, then the body, each alone."""
    states, drawn = toy.run_quadratic(fedrep, head_epochs=head_epochs)
    body = np.asarray(states[0].server["body"])
    head = np.asarray(states[0].clients["head"])
    for ids, state in zip(drawn, states[1:], strict=True):
        head, uploads = head.copy(), []
        for k in ids:
            slope = lambda x, k=k: toy.gradient(k, x)  # noqa: E731
            w = np.concatenate([body, head[k]])
            head[k] = toy.descend(w, slope, head_epochs or 3)[2:]  # coordinates are
            uploads.append(toy.descend(w, slope)[:2])  # independent here
        body = np.mean(uploads, axis=0)
        np.testing.assert_allclose(state.server["body"], body, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state.clients["head"], head, rtol=1e-5, atol=1e-5)


def test_head_epochs_need_epochs():
    local = Local(0.1, batch_size=4, epochs=None, steps=3)
    method = fedrep(toy.quadratic(), local)
    with pytest.raises(ValueError, match="give epochs instead of steps"):
        toy.run_rounds(method, toy.quadratic(), local, toy.quadratic_clients(), 1)
