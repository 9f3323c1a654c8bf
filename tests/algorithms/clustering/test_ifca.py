import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.clustering.ifca import ifca
from pfljax.conformance import Case, toy
from pfljax.core.optimizers import learning_rate

BYTES = (2 * toy.WHOLE, toy.WHOLE + 2 * 4)  # two models down; one and its choice up
CONFORMANCE = [
    Case("ifca", bytes=BYTES),
    Case("ifca", {"averaging": "gradients"}, bytes=BYTES, ignores_steps=True),
]


def nearest(models, k):
    """The model of least loss on client k's examples."""
    return int(np.argmin(((models - toy.B[k]) ** 2).sum(1)))


def averaged(models, ids):
    """Models after one round in which clients `ids` train their nearest."""
    choice = np.array([nearest(models, k) for k in ids])
    trained = np.array(
        [toy.descend(models[j], lambda x, k=k: toy.gradient(k, x))
         for j, k in zip(choice, ids, strict=True)]
    )  # fmt: skip
    rows = [trained[choice == j] for j in range(len(models))]
    return np.array([r.mean(0) if len(r) else models[j] for j, r in enumerate(rows)])


def stepped(models, ids):
    """Models after one round of gradient averaging, divided by the cohort's size."""
    new = models.copy()
    for k in ids:
        j = nearest(models, k)
        new[j] -= toy.RATE / len(ids) * toy.gradient(k, models[j])
    return new


@pytest.mark.parametrize(
    ("averaging", "step"), [("models", averaged), ("gradients", stepped)]
)
def test_ifca_against_numpy(averaging, step):
    states, drawn = toy.run_quadratic(ifca, clusters=3, averaging=averaging)
    models = toy.flat(states[0].server)
    assert len(np.unique(models, axis=0)) == 3
    used = set()
    for ids, state in zip(drawn, states[1:], strict=True):
        used |= {nearest(models, k) for k in ids}
        models = step(models, ids)
        found = toy.flat(state.server)
        np.testing.assert_allclose(found, models, rtol=1e-5, atol=1e-5)
    assert len(used) > 1


def test_a_client_is_evaluated_with_the_model_of_least_training_loss():
    method = ifca(toy.quadratic(), toy.full_batch(), clusters=3)
    models = np.array([[9.0, 9, 9], [0, 2, 0], [1, -2, 1]])
    server = toy.unflat(models)
    turn = toy.turn(jax.random.key(0), 0, 1)
    for k in range(4):
        data = toy.one(toy.quadratic_clients(), k)
        evaluated = toy.flat(method.personal(turn, server, (), data))
        np.testing.assert_array_equal(evaluated, models[nearest(models, k)])


def test_gradient_averaging_divides_by_those_who_reported():
    local = toy.full_batch()._replace(learning_rate=lambda r: 0.5 / (r + 1))
    method = ifca(toy.quadratic(), local, clusters=2, averaging="gradients")
    upload = method.train(
        toy.turn(jax.random.key(0), 1, 1),
        toy.unflat(np.zeros((2, 3))), (), toy.one(toy.quadratic_clients(), 1),
    )[1]  # fmt: skip
    uploads = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), upload)
    cohort = toy.cohort([1.0, 0, 1], 3, round_=1)
    server = toy.unflat(np.zeros((2, 3)))
    models = toy.flat(method.aggregate(server, uploads, cohort))
    rate = learning_rate(local, 1)
    np.testing.assert_allclose(models[0], rate * toy.A[1] * toy.B[1], rtol=1e-6)
    np.testing.assert_array_equal(models[1], 0)


def test_more_clusters_than_clients_are_refused():
    with pytest.raises(ValueError, match="ifca: clusters is 5; expected at most 4"):
        ifca(toy.quadratic(), toy.full_batch(), clusters=5, num_clients=4)
    ifca(toy.quadratic(), toy.full_batch(), clusters=4, num_clients=4)
