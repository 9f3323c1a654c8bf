import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.clustering.hypcluster import hypcluster
from pfljax.algorithms.clustering.ifca import Upload
from pfljax.conformance import Case, toy

BYTES = (2 * toy.WHOLE, toy.WHOLE + 2 * 4)  # two models down; one and its choice up
CONFORMANCE = [
    Case("hypcluster", bytes=BYTES),
    Case("hypcluster", {"server_optimizer": "adam", "server_lr": 0.01}, bytes=BYTES),
]


def nearest(models, k):
    """The model of least loss on client k's examples."""
    return int(np.argmin(((models - toy.B[k]) ** 2).sum(1)))


def test_hypcluster_against_numpy():
    """The mean of a cluster is by examples, and its velocity is its own."""
    momentum = 0.9
    name = f"sgd:momentum={momentum}"
    options = {"clusters": 3, "server_lr": 0.5, "server_optimizer": name}
    states, drawn = toy.run_quadratic(hypcluster, cohort=4, **options)
    models = toy.flat(states[0].server.w)
    velocity = np.zeros_like(models)
    sizes = set()
    for ids, state in zip(drawn, states[1:], strict=True):
        choice = np.array([nearest(models, k) for k in ids])
        for j in range(3):
            members = ids[choice == j]
            sizes.add(len(members))
            if not len(members):
                continue
            trained = [
                toy.descend(models[j], lambda w, k=k: toy.gradient(k, w))
                for k in members
            ]
            mean = np.average(trained, axis=0, weights=toy.COUNTS[members])
            velocity[j] = momentum * velocity[j] + models[j] - mean
            models[j] = models[j] - 0.5 * velocity[j]
        found = toy.flat(state.server.w)
        np.testing.assert_allclose(found, models, rtol=1e-5, atol=1e-5)
    assert {1, 2} <= sizes


def test_a_cluster_that_nobody_chose_rests_with_its_optimizer():
    """Also after a round in which it was chosen, when its momentum would go on."""
    task, local = toy.quadratic(), toy.full_batch()
    method = hypcluster(task, local, server_optimizer="adam", server_lr=0.1)
    key = jax.random.key(0)
    server = method.init(task.init(key), 4, key)
    trained = toy.unflat(np.ones((1, 3)))

    def after(server, j):
        upload = Upload(params=trained, choice=jax.nn.one_hot(jnp.array([j]), 2))
        return method.aggregate(server, upload, toy.cohort([1.0]))

    second = after(after(server, 0), 1)
    firsts = [jax.tree.map(lambda leaf: leaf[0], s) for s in (after(server, 0), second)]
    toy.assert_same(*firsts)
    assert not np.allclose(toy.flat(firsts[0].w), toy.flat(server.w)[0])


def test_a_client_is_evaluated_with_the_model_of_least_training_loss():
    method = hypcluster(toy.quadratic(), toy.full_batch(), clusters=3)
    models = np.array([[9.0, 9, 9], [0, 2, 0], [1, -2, 1]])
    key = jax.random.key(0)
    server = method.init(toy.unflat(np.ones(3)), 4, key)._replace(w=toy.unflat(models))
    for k in range(4):
        data = toy.one(toy.quadratic_clients(), k)
        evaluated = toy.flat(method.personal(toy.turn(), server, (), data))
        np.testing.assert_array_equal(evaluated, models[nearest(models, k)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"clusters": 5, "num_clients": 4},
            "clusters is 5; expected at most 4, the num",
        ),
        (
            {"server_optimizer": "sdg"},
            "unknown server optimizer 'sdg'.* did you mean 'sgd'",
        ),
        ({"server_lr": 0.0}, r"server_lr is 0\.0; expected a finite number > 0"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        hypcluster(toy.quadratic(), toy.full_batch(), **options)
