import numpy as np

import toy
from pfljax.algorithms.fedper import fedper


def test_fedper_against_numpy():
    """The body is the first two coordinates, averaged; the head is the third, kept."""
    states, drawn = toy.quadratic_game(fedper)
    body = np.asarray(states[0].server["body"])
    head = np.asarray(states[0].clients["head"])
    assert states[0].server["head"] is None
    assert states[0].clients["body"] is None
    for ids, state in zip(drawn, states[1:], strict=True):
        head, uploads = head.copy(), []
        for k in ids:
            w = np.concatenate([body, head[k]])
            w = toy.descend(w, lambda x, k=k: toy.gradient(k, x))
            uploads.append(w[:2])
            head[k] = w[2:]
        body = np.average(uploads, axis=0, weights=toy.COUNTS[ids])
        np.testing.assert_allclose(state.server["body"], body, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state.clients["head"], head, rtol=1e-5, atol=1e-5)


def test_a_client_is_judged_by_the_newest_body_under_its_own_head():
    method = fedper(toy.quadratic(), toy.full_batch())
    body, head = {"body": np.ones(2), "head": None}, {"body": None, "head": np.zeros(1)}
    judged = method.personal(None, body, head, None)
    np.testing.assert_array_equal(toy.flat(judged), [1, 1, 0])
    assert method.server_model is None
