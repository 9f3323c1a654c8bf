import jax
import numpy as np

import perceptron
from pfljax.algorithms.decoupling.fedrod import fedrod
from pfljax.conformance import Case, toy
from pfljax.core.types import Batch

SENT = (toy.WHOLE, toy.WHOLE)
CONFORMANCE = [Case("fedrod", bytes=SENT), Case("fedrod", {"gamma": 0.5}, bytes=SENT)]

TASK, LOCAL = toy.classifier(), perceptron.FULL
TRAIN, _ = toy.ragged()
GAMMA = 1.5


def trained(w, q, x, y):
    """([b, W, c, V], [c, V] of the personal head) after two steps."""
    count = np.bincount(y, minlength=3)
    with np.errstate(divide="ignore"):
        prior = GAMMA * np.log(count)  # minus infinity for a class without examples
    for _ in range(2):
        z = perceptron.features(w, x)
        generic = perceptron.logits(w, z)
        both = generic + z @ q[1] + q[0]
        of_q = perceptron.cross_entropy_slope(both, y)
        w = perceptron.stepped(w, x, perceptron.cross_entropy_slope(generic + prior, y))
        q = [q[0] - 0.1 * of_q.sum(0), q[1] - 0.1 * z.T @ of_q]
    return w, q


def test_fedrod_against_numpy():
    method = fedrod(TASK, LOCAL, gamma=GAMMA)
    states, _ = toy.run_rounds(method, TASK, LOCAL, TRAIN, 2, cohort=5)
    w = perceptron.weights(states[0].server)
    heads = [w[2:]] * 8
    for state in states[1:]:
        uploads, cohort = [], np.asarray(state.cohort)
        for k in cohort:
            upload, heads[k] = trained(w, heads[k], *perceptron.examples(k))
            uploads.append(upload)
        w = perceptron.averaged(uploads, cohort)
        perceptron.assert_weights(state.server, w)
        perceptron.assert_clients(state.clients, heads)
    x, _ = perceptron.examples(1)
    z = perceptron.features(w, x)
    q = jax.tree.map(lambda leaf: leaf[1], states[-1].clients)
    server = states[-1].server
    for model, share in (
        (method.personal(None, server, q, None), 1),
        (method.newcomer(None, server, None), 0),
    ):
        wanted = perceptron.logits(w, z) + share * (z @ heads[1][1] + heads[1][0])
        found = jax.jit(method.predict)(model, Batch.full(x))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
