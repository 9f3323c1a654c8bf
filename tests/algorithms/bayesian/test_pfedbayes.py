import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from adam import adam
from pfljax import models
from pfljax.algorithms import _raveled as raveled
from pfljax.algorithms.bayesian import _gaussian as gaussian
from pfljax.algorithms.bayesian._gaussian import Ensemble
from pfljax.algorithms.bayesian.pfedbayes import pfedbayes
from pfljax.algorithms.local import local as alone
from pfljax.conformance import Case, toy
from pfljax.core.types import Batch, Local

CONFORMANCE = [
    Case("pfedbayes", bytes=(2 * toy.WHOLE, 2 * toy.WHOLE)),
]

TASK = toy.quadratic()
KEY = jax.random.key(0)
RATE, SCALE, ZETA = 0.05, 0.4, 3.0
build = functools.partial(pfedbayes, scale=SCALE, zeta=ZETA, posterior_lr=RATE)


def slopes(k, x):
    """Of mu_q, rho_q, mu_w, rho_w, by the closed forms of E_q[F_k] and of KL."""
    mu_q, rho_q, mu_w, rho_w = x
    s_q, s_w = np.log1p(np.exp(rho_q)), np.log1p(np.exp(rho_w))
    share, away = ZETA / toy.COUNTS[k], mu_q - mu_w
    return np.stack(
        [
            toy.gradient(k, mu_q) + share * away / s_w**2,
            (toy.A[k] * s_q + share * (s_q / s_w**2 - 1 / s_q)) / (1 + np.exp(-rho_q)),
            -share * away / s_w**2,
            share * (1 / s_w - (s_q**2 + away**2) / s_w**3) / (1 + np.exp(-rho_w)),
        ]
    )


def rows_of(q):
    """(means, spreads) of a Gaussian as vectors."""
    return toy.flat(q.mean), toy.flat(q.spread)


def test_pfedbayes_against_numpy(exact):
    states, drawn = toy.run_quadratic(build, samples=2)
    w = np.float64(rows_of(states[0].server))
    q = np.float64(rows_of(states[0].clients))
    np.testing.assert_array_equal(q[:, 2], w)  # all begin at the same
    for ids, state in zip(drawn, states[1:], strict=True):
        uploads = []
        for k in ids:
            pair = adam(np.r_[q[:, k], w], functools.partial(slopes, k), RATE)
            q[:, k] = pair[:2]
            uploads.append(pair[2:])
        w = np.mean(uploads, axis=0)
        found = rows_of(state.server), rows_of(state.clients)
        np.testing.assert_allclose(found[0], w, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found[1], q, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_equal_distributions_do_not_pull_each_other():
    """Of examples without a loss: else Adam would make whole steps of rounding."""
    local = toy.full_batch()
    still = TASK._replace(loss=lambda params, batch, key: 0 * batch.mask.sum())
    states, _ = toy.run_rounds(
        build(still, local), still, local, toy.noisy_clients(), 1
    )
    toy.assert_same(states[0].clients, states[1].clients)
    toy.assert_close(states[0].server, states[1].server, 1e-6)


@pytest.mark.slow
def test_without_divergence_w_rests_and_points_train_alone():
    """zeta = 0, of clients whose draws are their means."""
    data = toy.noisy_clients()
    local = Local(RATE, batch_size=4, epochs=2, optimizer=optax.adam)
    method = build(TASK, local, zeta=0.0, scale=1e-12)
    states, _ = toy.run_rounds(method, TASK, local, data, cohort=5)
    toy.assert_same(states[0].server, states[-1].server)
    wanted, _ = toy.run_rounds(alone(TASK, local), TASK, local, data, cohort=5)
    found = jax.vmap(raveled.unraveling(TASK))(states[-1].clients.mean)
    toy.assert_close(found, wanted[-1].clients)


def test_a_client_is_evaluated_with_its_own_posterior_and_a_newcomer_by_w():
    w = gaussian.around(toy.unflat([1.0, -2, 3]), 0.5)
    q = gaussian.around(raveled.ravel(toy.unflat([0.0, 1, 2])), 0.5)
    batch = Batch.full(jnp.ones((2, 4)))
    method = build(TASK, toy.full_batch())
    evaluated = method.personal(toy.turn(KEY), w, q, None)
    mean = toy.unflat([1.0, -2, 3])
    toy.assert_same(evaluated, toy.unflat([0.0, 1, 2]))
    toy.assert_same(method.newcomer(toy.turn(KEY), w, None), mean)
    toy.assert_same(method.server_model(w), mean)
    method = build(TASK, toy.full_batch(), draws=5)
    drawn = method.personal(toy.turn(KEY), w, q, None)
    assert isinstance(drawn, Ensemble)
    heads = toy.flat(drawn.drawn)
    assert heads.shape == (5, 3)
    wanted = jax.nn.softmax(heads).mean(0)
    found = np.exp(method.predict(drawn, batch))
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5)


@pytest.mark.slow
def test_w_is_sent_with_the_statistics_of_the_posterior():
    body = nn.Sequential([nn.Dense(4), nn.BatchNorm(momentum=0.9), nn.relu])
    task = toy.traced_once(models.task(models.Network(body, nn.Dense(3)), (3,)))
    method = pfedbayes(task, Local(0.1, batch_size=4, epochs=1))
    w = method.init(task.init(KEY), 4, KEY)
    data = toy.one(toy.ragged()[0], 1)
    train = jax.jit(method.train)
    first = gaussian.map_leaves(raveled.ravel, w)
    q, upload, _ = train(toy.turn(KEY, 0, 5, 1), w, first, data)
    sent, began = raveled.ravel(upload.mean), raveled.ravel(w.mean)
    np.testing.assert_array_equal(sent["batch_stats"], q.mean["batch_stats"])
    assert np.abs(sent["batch_stats"][:4]).max() > 1e-3  # the means of batches
    origin = raveled.ravel(method.origin(w, q, upload).mean)
    np.testing.assert_array_equal(origin["batch_stats"], sent["batch_stats"])
    np.testing.assert_array_equal(origin["parameters"], began["parameters"])


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("scale", -1.0, "a standard deviation from 1e-18"),
        ("zeta", -1.0, "a finite number >= 0"),
        ("posterior_lr", -0.1, "a finite number >= 0"),
        ("samples", 0, "at least 1"),
    ],
)
def test_bad_options_are_refused_at_once(option, value, expected):
    with pytest.raises(ValueError, match=expected) as error:
        pfedbayes(TASK, toy.full_batch(), **{option: value})
    assert option in str(error.value)
    assert "\n" not in str(error.value)
