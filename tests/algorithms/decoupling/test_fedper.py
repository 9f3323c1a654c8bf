import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.decoupling.fedper import fedper
from pfljax.algorithms.decoupling.fedrep import fedrep
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("fedper", bytes=(toy.BODY, toy.BODY)),
]


def test_fedper_against_numpy():
    """The body is the first two coordinates, averaged; the head is the third, kept."""
    states, drawn = toy.run_quadratic(fedper)
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


def test_a_client_is_evaluated_with_the_newest_body_under_its_own_head():
    method = fedper(toy.quadratic(), toy.full_batch())
    body, head = {"body": np.ones(2), "head": None}, {"body": None, "head": np.zeros(1)}
    evaluated = method.personal(None, body, head, None)
    np.testing.assert_array_equal(toy.flat(evaluated), [1, 1, 0])
    assert method.server_model is None


@pytest.mark.parametrize("factory", [fedper, fedrep])
def test_an_unseen_client_fits_a_head_to_the_newest_body(factory):
    method = factory(toy.quadratic(), toy.full_batch(), finetune=4)
    turn = toy.turn(jax.random.key(0), 0, 0)
    body = {"body": jnp.ones(2), "head": None}
    head = method.init_client(toy.unflat(np.ones(3)), jnp.int32(9), turn.key)
    evaluated = method.personal(turn, body, head, toy.one(toy.quadratic_clients(), 2))
    wanted = toy.descend(np.ones(3), lambda x: toy.gradient(2, x), 4)
    np.testing.assert_allclose(evaluated["head"], wanted[2:], rtol=1e-6)
    np.testing.assert_array_equal(evaluated["body"], [1, 1])
