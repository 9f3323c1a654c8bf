import numpy as np
import pytest

import toy
from pfljax.algorithms.lg_fedavg import lg_fedavg


@pytest.mark.parametrize("weighting", ["rows", "uniform"])
def test_lg_fedavg_against_numpy(weighting):
    """The head is the third coordinate, averaged; the body is the first two, kept."""
    states, drawn = toy.quadratic_game(lg_fedavg, weighting=weighting)
    head = np.asarray(states[0].server["head"])
    body = np.asarray(states[0].clients["body"])
    for ids, state in zip(drawn, states[1:], strict=True):
        body, uploads = body.copy(), []
        for k in ids:
            w = np.concatenate([body[k], head])
            w = toy.descend(w, lambda x, k=k: toy.gradient(k, x))
            uploads.append(w[2:])
            body[k] = w[:2]
        counts = toy.COUNTS[ids] if weighting == "rows" else None
        head = np.average(uploads, axis=0, weights=counts)
        np.testing.assert_allclose(state.server["head"], head, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state.clients["body"], body, rtol=1e-5, atol=1e-5)


def test_another_weighting_is_refused():
    with pytest.raises(ValueError, match="known: rows, uniform"):
        toy.quadratic_game(lg_fedavg, weighting="size")
