import jax
import jax.numpy as jnp
import numpy as np
import pytest

import perceptron
from pfljax.algorithms.decoupling.fedbabu import fedbabu
from pfljax.conformance import Case, toy

CONFORMANCE = [
    Case("fedbabu", bytes=(toy.BODY, toy.BODY)),
    Case("fedbabu", {"tune": "head", "finetune": 2}, bytes=(toy.BODY, toy.BODY)),
]


def test_fedbabu_against_numpy():
    """The body is averaged uniformly; no head ever leaves its first value."""
    task, local = toy.classifier(), perceptron.FULL
    train, _ = toy.ragged()
    method = fedbabu(task, local)
    states, _ = toy.run_rounds(method, task, local, train, 2, cohort=5)
    body, heads = perceptron.weights(states[0].server), states[0].clients
    head = perceptron.of_client(heads, 0)
    for state in states[1:]:
        uploads = []
        for k in np.asarray(state.cohort):
            (x, y), w = perceptron.examples(k), [*body, *head]
            for _ in range(2):
                logits = perceptron.logits(w, perceptron.features(w, x))
                slope = perceptron.cross_entropy_slope(logits, y)
                w = [*perceptron.stepped(w, x, slope)[:2], *head]
            uploads.append(w[:2])
        body = [np.mean(leaf, 0) for leaf in zip(*uploads, strict=True)]
        perceptron.assert_weights(state.server, body)
        toy.assert_same(state.clients, heads)


@pytest.mark.parametrize("tune", ["model", "body", "head"])
def test_an_evaluation_fine_tunes(tune):
    method = fedbabu(toy.quadratic(), toy.full_batch(), finetune=4, tune=tune)
    turn = toy.turn(jax.random.key(0), 0, 0)
    body, head = {"body": jnp.ones(2), "head": None}, {"body": None, "head": np.ones(1)}
    evaluated = method.personal(turn, body, head, toy.one(toy.quadratic_clients(), 2))
    wanted = toy.descend(np.ones(3), lambda x: toy.gradient(2, x), 4)
    is_tuned = np.array([tune != "head", tune != "head", tune != "body"])
    wanted = np.where(is_tuned, wanted, 1)
    np.testing.assert_allclose(toy.flat(evaluated), wanted, rtol=1e-6)
