import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from adam import adam
from pfljax import engine, selection
from pfljax.algorithms import _raveled as raveled
from pfljax.algorithms.bayesian import _gaussian as gaussian
from pfljax.algorithms.bayesian._gaussian import Natural
from pfljax.algorithms.bayesian.virtual import (
    Client,
    aggregate,
    cavity_prior,
    damp,
    virtual,
)
from pfljax.conformance import Case, toy
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.training import fit
from pfljax.core.types import Batch, Local

CONFORMANCE = [
    Case("virtual", bytes=(2 * toy.WHOLE, 2 * toy.WHOLE)),
]

TASK = toy.quadratic()
KEY = jax.random.key(0)
RATE, WEIGHT, DAMPING = 0.01, 0.7, 0.4
build = functools.partial(
    virtual, kl_weight=WEIGHT, damping=DAMPING, posterior_lr=RATE, private=False
)


@pytest.fixture
def two_draws(exact, monkeypatch):
    """Expectations over two draws in the place of one."""
    expected = gaussian.expectation
    monkeypatch.setattr(
        gaussian, "expectation", lambda value, q, key, count: expected(value, q, key, 2)
    )


def slopes(k, shift, precision, x):
    """Of the mean and the spread, by the closed forms; the prior in naturals."""
    mean, spread = x
    sigma, sigmoid = np.log1p(np.exp(spread)), 1 / (1 + np.exp(-spread))
    share = WEIGHT / toy.COUNTS[k]
    of_mean = toy.gradient(k, mean) + share * (mean * precision - shift)
    of_sigma = toy.A[k] * sigma + share * (sigma * precision - 1 / sigma)
    return np.stack([of_mean, of_sigma * sigmoid])


def vectors(factor):
    return np.stack([toy.flat(factor.shift), toy.flat(factor.precision)])


def test_virtual_against_numpy(two_draws):
    """Shift and precision are rows; c = 1 / 4, and N(0, 1) is (0, 1)."""
    states, drawn = toy.run_quadratic(build)
    s = np.float64(vectors(states[0].server))
    sites = np.stack([s] * 4)
    for ids, state in zip(drawn, states[1:], strict=True):
        changes = []
        for k in ids:
            p = s - sites[k] / 4 + np.array([[0], [1]]) / 4
            start = s[0] / s[1], np.log(np.expm1(s[1] ** -0.5))
            mean, spread = adam(np.stack(start), functools.partial(slopes, k, *p), RATE)
            precision = np.maximum(np.log1p(np.exp(spread)) ** -2, p[1])
            change = DAMPING * (np.stack([mean * precision, precision]) - s)
            sites[k] += 4 * change
            changes.append(change)
        s = s + np.sum(changes, axis=0)
        np.testing.assert_allclose(vectors(state.server), s, rtol=1e-4, atol=1e-3)
        found = np.moveaxis(vectors(state.clients.site), 0, 1)
        np.testing.assert_allclose(found, sites, rtol=1e-4, atol=1e-2)


@pytest.mark.slow
def test_the_server_comes_to_the_exact_posterior_of_all_examples(two_draws):
    """Of Gaussian clients: precision 1 + sum n a, and the mean of the minima by it."""
    local = toy.full_batch(epochs=10)
    method = virtual(
        TASK, local, kl_weight=1.0, damping=0.25, posterior_lr=0.01, private=False
    )
    setting = engine.Setting(method, local, selection.uniform(4, 4))
    state = engine.init(setting, TASK, 4, jax.random.key(0))
    program = engine.compile_rounds(setting, 400)
    state, _ = program(state, toy.quadratic_clients(), 400)
    precision = toy.COUNTS * toy.A
    found = gaussian.gaussian(state.server)
    wanted = precision @ toy.B / (1 + precision.sum())
    np.testing.assert_allclose(toy.flat(found.mean), wanted, atol=0.02)
    deviation = (1 + precision.sum()) ** -0.5
    np.testing.assert_allclose(toy.flat(gaussian.std(found)), deviation, rtol=0.03)


@functools.cache
def classified():
    """The states after 0 .. 3 rounds of 5 of 8 clients, with private paths."""
    local = Local(0.1, batch_size=4, epochs=1)
    method = virtual(toy.classifier(), local, posterior_lr=RATE)
    return toy.run_rounds(method, toy.classifier(), local, toy.ragged()[0], cohort=5)[0]


@pytest.mark.slow
def test_the_server_is_the_product_of_the_factors():
    for state in classified():
        product = jax.tree.map(lambda leaf: leaf.mean(0), state.clients.site)
        server = Natural(*map(raveled.ravel, state.server))
        toy.assert_close(product, server, 1e-4)
        assert min(leaf.min() for leaf in toy.arrays(state.server.precision)) >= 1


def test_private_paths_and_gates_are_trained_and_stay():
    first, *_, last = classified()
    took_part = np.asarray(last.participations) > 0
    assert took_part.sum() >= 5
    for name in ("private", "gate"):
        before, after = (getattr(state.clients, name) for state in (first, last))
        moved = [
            np.abs(b - a).reshape(8, -1).max(1)
            for a, b in zip(toy.arrays(before), toy.arrays(after), strict=True)
        ]
        np.testing.assert_array_equal(np.max(moved, 0) > 1e-3, took_part)
    gate = np.asarray(first.clients.gate)
    assert gate.min() >= 0
    assert gate.max() <= 0.1
    assert len(np.unique(gate)) == gate.size


def test_a_client_is_evaluated_with_its_path_and_a_newcomer_without():
    task, state = toy.classifier(), classified()[-1]
    method = virtual(task, Local(0.1, batch_size=4))
    client = Client(*tree.take(state.clients, 2))
    x = np.random.default_rng(0).normal(size=(5, 3))
    batch = Batch.full(jnp.asarray(x, jnp.float32))
    turn = toy.turn(KEY, num_clients=8)
    shared = task.predict(method.server_model(state.server), batch)
    own = task.predict(raveled.unraveling(task)(client.private.mean), batch)
    model = method.personal(turn, state.server, client, None)
    found = method.predict(model, batch)
    gate = np.maximum(client.gate, 0)
    np.testing.assert_allclose(found, shared + gate * own, rtol=1e-5, atol=1e-6)
    unseen = method.newcomer(turn, state.server, None)
    toy.assert_same(method.predict(unseen, batch), shared)
    method = virtual(task, Local(0.1, batch_size=4), draws=4)
    drawn = method.personal(turn, state.server, client, None)
    total = np.exp(method.predict(drawn, batch)).sum(1)
    np.testing.assert_allclose(total, 1, rtol=1e-5)


@pytest.mark.slow
def test_one_client_alone_is_bayes_by_backprop():
    """The cavity is empty: the prior is N(0, 1), whatever the rounds before."""
    local = Local(0.1, batch_size=4, epochs=2)
    data = toy.noisy_clients()
    data = data._replace(offset=data.offset[1:2], size=data.size[1:2])
    states, _ = toy.run_rounds(build(TASK, local, damping=1.0), TASK, local, data)
    mine, size = toy.one(data, 0), int(data.size[0])
    adam = local._replace(learning_rate=RATE, optimizer=optax.adam)

    @jax.jit
    def descended(q, turn):
        prior = gaussian.around(tree.zeros(q.mean), 1.0)

        def loss(q, batch, key):
            draw = gaussian.draws(q, derive(key, "draws"), 1)
            return TASK.loss(tree.take(draw, 0), batch, key)

        def penalty(q):
            return WEIGHT / size * gaussian.kl(q, prior)

        return fit(loss, q, mine, turn, adam, penalty=penalty)[0]

    q = gaussian.gaussian(states[0].server)
    for before, after in itertools.pairwise(states):
        turn = toy.turn(toy.turn_key(before, 0), before.round, 10, 0, 1)
        q = descended(q, turn)
        found = gaussian.gaussian(after.server)
        toy.assert_close(found.mean, q.mean, 1e-4)
        toy.assert_close(gaussian.std(found), gaussian.std(q), 1e-4)


def test_noise_of_a_channel_leaves_the_server_a_density():
    """A sum of changes that is negative in a precision stops at the prior's."""
    server = build(TASK, toy.full_batch()).init(TASK.init(KEY), 4, KEY)
    changes = jax.tree.map(lambda leaf: jnp.full((1, *leaf.shape), -1e4), server)
    after = aggregate(server, changes, toy.cohort(jnp.ones(1)))
    assert all((leaf == 1).all() for leaf in jax.tree.leaves(after.precision))
    toy.assert_close(after.shift, tree.add(server, tree.take(changes, 0)).shift, 1e-6)
    p = cavity_prior(after, tree.parameters(server), 1 / 4)  # sites of precision 400
    assert all((leaf == 1 / 4).all() for leaf in jax.tree.leaves(p.precision))


def test_the_cavity_is_the_posterior_without_its_own_factor():
    """Of four clients: the three other factors, and the whole prior's share of one."""
    rng = np.random.default_rng(0)
    sites = [
        gaussian.Natural(*map(toy.unflat, rng.uniform(1, 5, size=(2, 3))))
        for _ in range(4)
    ]
    s = tree.scale(functools.reduce(tree.add, sites), 1 / 4)
    p = vectors(cavity_prior(s, sites[1], 1 / 4))
    others = sum(vectors(sites[k]) for k in (0, 2, 3)) / 4
    np.testing.assert_allclose(p, others + np.array([[0], [0.25]]), rtol=1e-5)


def test_a_change_is_damped_and_at_least_as_precise_as_the_prior():
    s = gaussian.natural(gaussian.around(toy.unflat([1.0, 2, 3]), 0.5))
    p = gaussian.natural(gaussian.around(toy.unflat([0.0, 0, 0]), 1.0))
    for std, precision in ((0.25, 16.0), (2.0, 1.0)):
        q = gaussian.around(toy.unflat([2.0, 2, 2]), std)
        change = vectors(damp(q, s, p, 0.3))
        shift = 0.3 * (precision * 2 - 4 * np.array([1, 2, 3]))
        np.testing.assert_allclose(change[0], shift, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(change[1], 0.3 * (precision - 4), rtol=1e-4)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("kl_weight", -1.0, "a finite number >= 0"),
        ("damping", 1.5, "a number from 0 to 1"),
        ("posterior_lr", -0.1, "a finite number >= 0"),
        ("draws", -1, "at least 0"),
    ],
)
def test_bad_options_are_refused_at_once(option, value, expected):
    with pytest.raises(ValueError, match=expected) as error:
        virtual(TASK, toy.full_batch(), **{option: value})
    assert option in str(error.value)
    assert "\n" not in str(error.value)
