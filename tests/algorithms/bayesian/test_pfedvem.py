import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pfljax import models
from pfljax.algorithms.bayesian import _gaussian as gaussian
from pfljax.algorithms.bayesian.pfedvem import Upload, confidence, pfedvem
from pfljax.conformance import Case, toy
from pfljax.core import tree
from pfljax.core.types import Batch, Local

CONFORMANCE = [
    Case("pfedvem", bytes=(toy.WHOLE, toy.WHOLE + 4)),
    Case("pfedvem", {"draws": 3}, bytes=(toy.WHOLE, toy.WHOLE + 4)),
]

TASK = toy.quadratic()
KEY = jax.random.key(0)
STEPS, RATE, SCALE = 4, 0.02, 0.6
IN_HEAD = tree.matches(TASK.groups, "head")
build = functools.partial(pfedvem, head_steps=STEPS, head_lr=RATE, scale=SCALE)


def head_steps(k, mu, pi, w, steps=STEPS):
    """(mu, pi, tau) of client k: closed forms of tau and of both slopes."""
    square = np.log1p(np.exp(pi)) ** 2
    tau = 1 / (square + (mu - w) ** 2)
    for _ in range(steps):
        sigma, sigmoid = np.log1p(np.exp(pi)), 1 / (1 + np.exp(-pi))
        of_mu = toy.COUNTS[k] * toy.A[k] * (mu - toy.B[k, 2]) + tau * (mu - w)
        of_sigma = toy.COUNTS[k] * toy.A[k] * sigma + tau * sigma - 1 / sigma
        mu, pi = mu - RATE * of_mu, pi - RATE * of_sigma * sigmoid
    return mu, pi, tau


def test_pfedvem_against_numpy(exact):
    """The head is the third coordinate; its confidence, it, and then the body."""
    states, drawn = toy.run_quadratic(build, samples=2)
    server = toy.flat(states[0].server)
    body, w = server[:2], server[2]
    mu = np.full(4, w)
    pi = np.full(4, np.log(np.expm1(SCALE)))
    for ids, state in zip(drawn, states[1:], strict=True):
        bodies, taus = [], []
        for k in ids:
            mu[k], pi[k], tau = head_steps(k, mu[k], pi[k], w)
            taus.append(tau)
            slope = lambda x, k=k: toy.A[k] * (x - toy.B[k, :2])  # noqa: E731
            bodies.append(toy.descend(body, slope))
        w = np.average(mu[ids], weights=taus)
        body = np.average(bodies, axis=0, weights=toy.COUNTS[ids])
        found = toy.flat(state.server)
        np.testing.assert_allclose(found, [*body, w], rtol=1e-5, atol=1e-5)
        q = state.clients
        np.testing.assert_allclose(q.mean["head"][:, 0], mu, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(q.spread["head"][:, 0], pi, rtol=1e-4, atol=1e-5)


def test_after_the_confidence_kl_is_that_of_its_logarithms():
    """At tau's own value the squares sum to d / 2, and cancel with the halves."""
    rng = np.random.default_rng(0)
    mean, w = (toy.unflat(rng.normal(size=3)) for _ in range(2))
    q = gaussian.Gaussian(mean, toy.unflat(rng.normal(size=3)))
    sigma = toy.flat(gaussian.std(q))
    found = confidence(q, w)
    away = toy.flat(mean) - toy.flat(w)
    assert float(found["uncertainty"]) == pytest.approx((sigma**2).mean(), rel=1e-5)
    assert float(found["deviation"]) == pytest.approx((away**2).mean(), rel=1e-5)
    rho = ((sigma**2).mean() + (away**2).mean()) ** 0.5
    assert float(found["tau"]) == pytest.approx(rho**-2, rel=1e-5)
    expected = 3 * np.log(rho) - np.log(sigma).sum()
    to_prior = jax.jit(
        jax.value_and_grad(lambda rho: gaussian.kl(q, gaussian.around(w, rho)))
    )
    value, of_rho = to_prior(rho)
    assert float(value) == pytest.approx(expected, rel=1e-5)
    assert float(of_rho) == pytest.approx(0, abs=1e-5)


def trained(server, q, **options):
    """(q, upload, metrics) of client 1 after three steps of the body."""
    local = toy.full_batch()
    data = toy.one(toy.quadratic_clients(), 1)
    method = build(TASK, local, **options)
    return jax.jit(method.train)(toy.turn(KEY, 0, 3, 1), server, q, data)


@pytest.mark.slow
def test_a_head_without_variance_descends_to_w():
    """By tau (mu - w) beside the summed losses of 5 examples: Ditto's lam = tau / 5."""
    server = toy.unflat([1.0, -2, 3])
    q = gaussian.around({"body": None, "head": jnp.asarray([0.5])}, 1e-7)
    q, upload, metrics = trained(server, q)
    tau = 1 / (0.5 - 3) ** 2
    for name, expected in (("tau", tau), ("uncertainty", 0), ("deviation", 2.5**2)):
        assert float(metrics[name]) == pytest.approx(expected, rel=1e-5, abs=1e-9)
    pulled = lambda x: 5 * (x - toy.B[1, 2]) + tau * (x - 3)  # noqa: E731
    wanted = toy.descend(0.5, pulled, STEPS, RATE)
    np.testing.assert_allclose(q.mean["head"], [wanted], rtol=1e-5)
    np.testing.assert_allclose(upload.params["head"], [wanted], rtol=1e-5)


def aggregated(tau, weight=toy.COUNTS):
    heads = np.float32([[1], [5], [-2], [7]])
    bodies = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    uploads = Upload({"body": bodies, "head": heads}, jnp.asarray(tau, jnp.float32))
    cohort = toy.cohort([1, 1, 0, 1], weight=np.float32(weight))
    found = build(TASK, toy.full_batch()).aggregate(None, uploads, cohort)
    return found, heads, bodies


def test_the_server_weighs_heads_by_confidence_and_bodies_by_examples():
    here, tau = [0, 1, 3], np.array([0.5, 2, 9, 1])
    found, heads, bodies = aggregated(tau)
    head = np.average(heads[here], axis=0, weights=tau[here])
    body = np.average(bodies[here], axis=0, weights=toy.COUNTS[here])
    np.testing.assert_allclose(found["head"], head, rtol=1e-6)
    np.testing.assert_allclose(found["body"], body, rtol=1e-6)
    toy.assert_close(aggregated(tau * 1000)[0], found, 1e-6)


def test_clients_of_one_confidence_count_alike():
    found, heads, _ = aggregated(np.full(4, 0.3))
    np.testing.assert_allclose(found["head"], heads[[0, 1, 3]].mean(0), rtol=1e-6)


def test_a_client_is_evaluated_with_the_newest_body_under_its_own_head():
    server = toy.unflat([1.0, -2, 3])
    q = gaussian.around({"body": None, "head": jnp.asarray([0.5])}, 2.0)
    batch = Batch.full(jnp.ones((2, 4)))
    method = build(TASK, toy.full_batch())
    evaluated = method.personal(toy.turn(KEY), server, q, None)
    np.testing.assert_array_equal(toy.flat(evaluated), [1, -2, 0.5])
    method = build(TASK, toy.full_batch(), draws=2000)
    drawn = method.personal(toy.turn(KEY), server, q, None)
    head = np.asarray(drawn.drawn["head"])[:, 0]
    assert head.mean() == pytest.approx(0.5, abs=0.2)
    assert head.std() == pytest.approx(2, rel=0.1)
    logits = np.c_[np.ones_like(head), np.full_like(head, -2), head]
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    found = np.exp(method.predict(drawn, batch))
    np.testing.assert_allclose(found[0], probabilities.mean(0), rtol=1e-4)
    newcomer = method.newcomer(toy.turn(KEY), server, None)
    logits = method.predict(newcomer, batch)
    expected = jax.nn.log_softmax(jnp.asarray([1.0, -2, 3]))
    np.testing.assert_allclose(logits[0], expected, rtol=1e-5)


def test_a_part_of_the_work_is_that_part_of_both():
    """One of three epochs: a third of the body's steps, and of the head's 6."""
    local, data = toy.full_batch(), toy.one(toy.quadratic_clients(), 1)
    server = toy.unflat([1.0, -2, 3])
    q = gaussian.around({"body": None, "head": jnp.asarray([0.5])}, SCALE)

    @functools.partial(jax.jit, static_argnums=1)
    def after(turn_steps, steps):
        method = build(TASK, local, head_steps=steps, samples=1)
        turn = toy.turn(KEY, 0, 0, 1)._replace(steps=turn_steps)
        return method.train(turn, server, q, data)[0]

    toy.assert_same(after(1, 6), after(3, 2))
    toy.assert_same(after(0, 6), q)


@pytest.mark.slow
def test_statistics_of_the_body_step_once_however_many_heads_are_drawn():
    body = nn.Sequential([nn.Dense(4), nn.BatchNorm(momentum=0.9), nn.relu])
    task = toy.traced_once(models.task(models.Network(body, nn.Dense(3)), (3,)))
    server, data = task.init(KEY), toy.one(toy.ragged()[0], 1)
    head, _ = tree.split(server, tree.matches(task.groups, "head"))
    local = Local(0.0, batch_size=32)

    @functools.partial(jax.jit, static_argnums=0)
    def statistics(samples):
        method = pfedvem(task, local, samples=samples)
        q = gaussian.around(head, 0.5)
        _, upload, _ = method.train(toy.turn(KEY, 0, 1, 1), server, q, data)
        return upload.params["body"]

    few, many = tree.paths(statistics(1)), tree.paths(statistics(4))
    name = "layers_1/batch_stats/mean"
    np.testing.assert_allclose(few[name], many[name], rtol=1e-5)
    assert np.abs(few[name]).max() > 1e-3


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("scale", -1.0, "a standard deviation from 1e-18"),
        ("scale", 0.0, "a standard deviation from 1e-18"),
        ("head_lr", -0.1, "a finite number >= 0"),
        ("samples", 0, "at least 1"),
        ("draws", -1, "at least 0"),
    ],
)
def test_bad_options_are_refused_at_once(option, value, expected):
    with pytest.raises(ValueError, match=expected) as error:
        pfedvem(TASK, toy.full_batch(), **{option: value})
    assert option in str(error.value)
    assert "\n" not in str(error.value)
