import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.decoupling.lg_fedavg import Upload, lg_fedavg
from pfljax.conformance import Case, toy

MEAN = (toy.HEAD, toy.HEAD + toy.BODY + 1)  # and whether it is new
CONFORMANCE = [
    Case("lg_fedavg", bytes=(toy.HEAD, toy.HEAD)),
    Case("lg_fedavg", {"mean_body": True, "finetune": 2}, bytes=MEAN),
]


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_lg_fedavg_against_numpy(weighting):
    """The head is the third coordinate, averaged; the body is the first two, kept."""
    states, drawn = toy.run_quadratic(lg_fedavg, weighting=weighting)
    head = np.asarray(states[0].server["head"])
    body = np.asarray(states[0].clients["body"])
    for ids, state in zip(drawn, states[1:], strict=True):
        body, uploads = body.copy(), []
        for k in ids:
            w = np.concatenate([body[k], head])
            w = toy.descend(w, lambda x, k=k: toy.gradient(k, x))
            uploads.append(w[2:])
            body[k] = w[:2]
        counts = toy.COUNTS[ids] if weighting == "examples" else None
        head = np.average(uploads, axis=0, weights=counts)
        np.testing.assert_allclose(state.server["head"], head, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(state.clients["body"], body, rtol=1e-5, atol=1e-5)


def test_an_unseen_client_fits_a_body_under_the_newest_head():
    method = lg_fedavg(toy.quadratic(), toy.full_batch(), finetune=4)
    turn = toy.turn(jax.random.key(0), 0, 0)
    head = {"body": None, "head": jnp.ones(1)}
    body = method.init_client(toy.unflat(np.ones(3)), jnp.int32(9), turn.key)
    evaluated = method.personal(turn, head, body, toy.one(toy.quadratic_clients(), 2))
    wanted = toy.descend(np.ones(3), lambda x: toy.gradient(2, x), 4)
    np.testing.assert_allclose(evaluated["body"], wanted[:2], rtol=1e-6)
    np.testing.assert_array_equal(evaluated["head"], [1])


def test_another_weighting_is_refused():
    with pytest.raises(ValueError, match="known: examples, uniform"):
        toy.run_quadratic(lg_fedavg, weighting="size")


def test_who_never_took_part_is_evaluated_with_the_mean_of_the_others_bodies():
    factory = functools.partial(lg_fedavg, mean_body=True)
    states, drawn = toy.run_quadratic(factory, rounds=3, cohort=1)
    plain, _ = toy.run_quadratic(lg_fedavg, rounds=3, cohort=1)
    clients, met = states[-1].clients, sorted(set(np.concatenate(drawn)))
    newcomer = next(k for k in range(4) if k not in met)
    assert len(met) == 2  # one of them twice: it counts once, with its newest body
    toy.assert_same(states[-1].server.head, plain[-1].server)
    toy.assert_same(clients.body, plain[-1].clients)
    method = factory(toy.quadratic(), toy.full_batch())
    for state, bodies in ((states[0], [newcomer]), (states[-1], met)):
        for k in (newcomer, met[0]):
            own = jax.tree.map(lambda leaf, k=k: leaf[k], state.clients)
            evaluated = method.personal(None, state.server, own, None)
            mean = state.clients.body["body"][np.array(bodies)].mean(0)
            expected = mean if k == newcomer else own.body["body"]
            np.testing.assert_allclose(evaluated["body"], expected, rtol=1e-5)
            np.testing.assert_array_equal(evaluated["head"], state.server.head["head"])


def test_a_client_that_does_not_report_does_not_count():
    factory = functools.partial(lg_fedavg, mean_body=True)
    method = factory(toy.quadratic(), toy.full_batch())
    params = toy.unflat(np.arange(3.0))
    server = method.init(params, 4, jax.random.key(0))
    new = jnp.array([True, True])
    heads = {"body": None, "head": jnp.ones((2, 1))}
    changes = {"body": jnp.array([[1.0, 2], [5, 6]]), "head": None}
    reported = toy.cohort(jnp.array([1.0, 0]), 4)
    uploads = Upload(head=heads, change=changes, is_new=new)
    after = method.aggregate(server, uploads, reported)
    assert after.count == 1
    np.testing.assert_array_equal(after.total["body"], [1, 2])
