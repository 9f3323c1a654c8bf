import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

import perceptron
import tiny
from pfljax import engine, models, selection
from pfljax.algorithms import _raveled as raveled
from pfljax.algorithms.global_model import _chain as chain
from pfljax.algorithms.global_model import _matching as matching
from pfljax.algorithms.global_model.fedma import Client, Last, fedma
from pfljax.conformance import Case, toy
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.optimizers import sgd
from pfljax.core.types import Batch, Local
from pfljax.engine.plan import round_key
from pfljax.models import layers

# Down the client's model, 4 rows of the hidden layer and the places of 4 units. Up
# these 4 rows, the head, and the rows of 3 classes.
ROWS = 4 * 4 * 4
SENT = (toy.WHOLE + ROWS + 4 * 4, ROWS + toy.HEAD + 4 * 3)
# Of 6 units: 2 more rows down, and as many inputs of the head up.
WIDER = (SENT[0] + 2 * 4 * 4, SENT[1] + 2 * 3 * 4)
CONFORMANCE = [
    Case("fedma", bytes=SENT),
    Case("fedma", {"growth": 1.5, "gamma": 20.0}, bytes=WIDER),
]

TASK = toy.classifier()
TRAIN, _ = toy.ragged()
RATE = perceptron.RATE
# The prior counts for nothing, and a unit with a partner is no new one.
FREE = {"sigma0": 1e4, "gamma": 1e-3}


def logits(w, x):
    return perceptron.logits(w, perceptron.features(w, x))


def trained(w, k, steps, frozen=False):
    """[b, W, c, V] of client k after steps on all its rows, of the head if frozen."""
    x, y = perceptron.examples(k)
    for _ in range(steps):
        slope = perceptron.cross_entropy_slope(logits(w, x), y)
        after = perceptron.stepped(w, x, slope)
        w = [*w[:2], *after[2:]] if frozen else after
    return w


def rows_of(w):
    """A hidden unit a row, its bias last."""
    return np.c_[w[1].T, w[0]]


def matched(rows, state, options):
    """(matched rows, assignments), as core/test_matching.py has them tested."""
    key = derive(round_key(state.key, state.round), "server")
    spread = {name: options[name] for name in ("sigma0", "sigma", "gamma")}
    prior = matching.make_prior(4, True, **spread)
    match = jax.jit(matching.match, static_argnums=(3, 5))
    key = derive(key, "layer 0")
    found = match(np.float32(rows), jnp.ones(len(rows)), key, 6, prior, 5)
    return np.float64(found.rows), np.asarray(found.assignment)


def wanted_round(w, assignments, cohort, match):
    """(the server's [b, W, c, V], who stands where) after a round, in NumPy."""
    ids = sorted(cohort, key=lambda k: -toy.SIZES[k])
    own = {k: assignments[k] for k in ids}
    clients = [[w[0][own[k]], w[1][:, own[k]], w[2], w[3][own[k]]] for k in ids]
    clients = [trained(c, k, 2) for c, k in zip(clients, ids, strict=True)]
    rows, places = match([rows_of(c) for c in clients])
    heads, counts = [], []
    for k, place, client in zip(ids, places, clients, strict=True):
        v = np.zeros((len(rows), 3))
        v[place] = client[3]
        whole = trained([rows[:, 3], rows[:, :3].T, client[2], v], k, 2, frozen=True)
        heads.append(whole[2:])
        counts.append(np.bincount(perceptron.examples(k)[1], minlength=3))
    share = np.array(counts) / np.sum(counts, 0)
    c, v = (
        np.sum([s * part for s, part in zip(share, parts, strict=True)], 0)
        for parts in zip(*heads, strict=True)
    )
    after = np.tile(np.arange(4), (8, 1))
    after[ids] = places
    return [rows[:, 3], rows[:, :3].T, c, v], after


def assert_rounds(options, match):
    """Three rounds of 5 of 8 clients, all rows in every step, are as in NumPy."""
    local = perceptron.FULL
    states, _ = toy.run_rounds(
        fedma(TASK, local, **options), TASK, local, TRAIN, 3, cohort=5
    )
    w = perceptron.weights(states[0].server.w)
    (assignments,) = map(np.asarray, states[0].server.assignments)
    for before, state in itertools.pairwise(states):
        cohort = [int(k) for k in state.cohort]
        w, assignments = wanted_round(w, assignments, cohort, partial(match, before))
        for leaf, wanted in zip(perceptron.weights(state.server.w), w, strict=True):
            np.testing.assert_allclose(leaf, wanted, rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(state.server.assignments[0], assignments)
    return states


def test_fedma_against_numpy():
    """With more units than a client has, and zeros behind those that are used."""
    options = {"growth": 1.5, "gamma": 3.0, "sigma": 0.05, "sigma0": 1.0}
    states = assert_rounds(options, lambda state, rows: matched(rows, state, options))
    used = []
    for state in states[1:]:
        w = state.server.w
        assignments = state.server.assignments[0][state.cohort]
        used.append(int(assignments.max()) + 1)
        assert not w["body"]["layers_1"]["kernel"][:, used[-1] :].any()
        assert not w["head"]["kernel"][used[-1] :].any()
    assert used == [4, 5, 6]
    # What is below the layer that is trained is the matched layer itself.
    took_part = int(states[-1].cohort[0])
    unravel = raveled.unraveling(
        chain.make_chain("fedma", TASK, options["growth"]).task
    )
    kept = unravel(tree.take(states[-1].clients.w, took_part))
    toy.assert_same(kept["body"], states[-1].server.w["body"])


@pytest.mark.slow
def test_clients_that_stay_close_are_averaged_layer_by_layer():
    """Uniformly: all but the last layer, which is averaged by the rows of a class."""

    def mean(state, rows):
        return np.mean(rows, 0), np.tile(np.arange(4), (len(rows), 1))

    assert_rounds(FREE, mean)


BODY = [
    layers.add_channel,
    nn.Conv(3, (3, 3)),
    nn.relu,
    models.max_pool,
    layers.flatten,
    models.Linear(5),
    nn.relu,
    nn.Dense(4),
    nn.relu,
]


@pytest.mark.slow
@pytest.mark.parametrize("growth", [1.0, 1.4])
def test_permutations_of_one_network_are_matched_to_the_same_function(growth):
    """Clients that take no step, and whose units have another order each."""
    task = models.task(models.Network(nn.Sequential(BODY), nn.Dense(3)), (4, 6))
    local = Local(0.0, batch_size=8)
    setting = engine.Setting(
        fedma(task, local, growth=growth, **FREE), local, selection.uniform(4, 4)
    )
    rng = np.random.default_rng(0)
    count = np.array([3, 9, 5, 4])
    x = rng.normal(size=(count.sum(), 4, 6))
    train, _ = toy.deal(x, rng.integers(0, 3, len(x)), count)
    first = engine.init(setting, task, 4, jax.random.key(0))
    params = jax.tree.map(
        lambda leaf: leaf + rng.normal(size=leaf.shape), task.init(jax.random.key(0))
    )
    w = setting.algorithm.init(params, 4, None).w
    orders = [
        np.array([rng.permutation(places.shape[1]) for _ in range(4)])
        for places in first.server.assignments
    ]
    server = first.server._replace(w=w, assignments=tuple(map(jnp.asarray, orders)))
    step = jax.jit(partial(engine.one_round, setting))
    state, _ = step(first._replace(server=server), train)
    rows = Batch.full(x)
    predict = setting.algorithm.predict
    wanted = predict(w, rows)
    assert np.ptp(np.asarray(wanted), 0).min() > 0.1
    np.testing.assert_allclose(predict(state.server.w, rows), wanted, atol=1e-4)
    # In the order of the largest client's.
    for places, order in zip(state.server.assignments, orders, strict=True):
        for places_of_client, order_of_client in zip(places, order, strict=True):
            np.testing.assert_array_equal(order[1][places_of_client], order_of_client)


def test_frozen_layers_do_not_decay():
    local = Local(0.1, batch_size=4, optimizer=sgd(0.9, 1e-1))
    method = fedma(TASK, local)
    w = TASK.init(jax.random.key(3))
    rows = np.random.default_rng(0).normal(size=(4, 4))
    message = matching.Matched(jnp.float32(rows), jnp.array([2, 0, 3, 1]))
    turn, data = toy.turn(steps=5, client_id=1), toy.one(TRAIN, 1)
    after, upload, metrics = jax.jit(method.then.train)(
        turn, message, Client(w=raveled.ravel(w), start=raveled.ravel(w)), data
    )
    after = raveled.unraveling(TASK)(after.w)
    np.testing.assert_array_equal(rows_of(perceptron.weights(after)), np.float32(rows))
    assert np.abs(after["head"]["kernel"] - w["head"]["kernel"]).max() > 1e-2
    assert metrics == {}
    y = perceptron.examples(1)[1]
    np.testing.assert_array_equal(upload.counts, np.bincount(y, minlength=3))


def random_rows(count):
    return np.random.default_rng(0).normal(size=(count, 4, 4)).astype(np.float32)


@pytest.mark.slow
def test_the_order_of_the_cohort_changes_nothing():
    """Of clients of equal rows, too: the smaller number is matched first."""
    method = fedma(TASK, toy.full_batch(), growth=1.5, gamma=3.0, sigma=0.3)
    server = method.init(TASK.init(jax.random.key(3)), 8, None)
    cohort = toy.cohort([1, 1, 0, 1, 1], 8, weight=[3.0, 5, 9, 3, 7])
    aggregate = jax.jit(method.aggregate)
    rows = random_rows(5)
    wanted = aggregate(server, rows, cohort)
    order = np.array([3, 4, 1, 2, 0])
    ids, weight, mask = (
        part[order] for part in (cohort.ids, cohort.weight, cohort.mask)
    )
    other = cohort._replace(ids=ids, weight=weight, mask=mask)
    toy.assert_close(aggregate(server, rows[order], other), wanted, 1e-6)
    assert np.asarray(wanted.assignments[0]).max() > 3
    # Who is absent is as who was not asked.
    np.testing.assert_array_equal(wanted.assignments[0][2], np.arange(4))


def test_the_last_layer_is_averaged_by_class():
    rows = np.random.default_rng(0).normal(size=(3, 3, 5)).astype(np.float32)
    counts = jnp.float32([[6, 0, 0], [2, 0, 5], [7, 1, 7]])
    method = fedma(TASK, toy.full_batch())
    server = method.init(TASK.init(jax.random.key(3)), 4, None)
    after = jax.jit(method.then.aggregate)(
        server, Last(rows, counts), toy.cohort([1, 1, 0])
    )
    found = np.c_[after.w["head"]["kernel"].T, after.w["head"]["bias"]]
    wanted = [(6 * rows[0, 0] + 2 * rows[1, 0]) / 8, rows[:2, 1].mean(0), rows[1, 2]]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    toy.assert_same(after.w["body"], server.w["body"])


def test_a_model_of_nnx_is_refused():
    class Perceptron(nnx.Module):
        def __init__(self, rngs):
            self.body = nnx.Linear(3, 4, rngs=rngs)
            self.head = nnx.Linear(4, 2, rngs=rngs)

    task = models.task_from_nnx(Perceptron, (3,))
    with pytest.raises(ValueError, match="it does not say what they are; choose"):
        fedma(task, toy.full_batch())


def test_a_run_refuses_a_model_before_it_compiles(tmp_path):
    flags = ("--dataset", "digits", "--model", "gn_cnn", "--out", tmp_path / "run")
    code, _, errors = tiny.main("run", "--algorithm", "fedma", *flags)
    assert (code, errors.count("\n")) == (2, 1)
    assert (
        "body/layers_2 normalises, filters or adds to body/layers_1; choose" in errors
    )


@pytest.mark.slow
def test_a_model_of_one_layer_is_averaged_by_class():
    task = models.task(models.model("logistic", 3), (3,))
    method = fedma(task, toy.full_batch(), growth=2.0)
    assert method.then is None
    states, _ = toy.run_rounds(method, task, toy.full_batch(), TRAIN, 1)
    assert states[-1].server.assignments == ()


def test_a_wider_model_is_evaluated_as_a_clients_own():
    """For a `server_model` is one of the task's widths."""
    same, wider = (fedma(TASK, toy.full_batch(), growth=g) for g in (1.0, 1.5))
    params = TASK.init(jax.random.key(3))
    assert same.personal is None
    toy.assert_same(same.server_model(same.init(params, 4, None)), params)
    assert wider.server_model is None
    server = wider.init(params, 4, None)
    evaluated = wider.personal(toy.turn(), server, None, None)
    batch = Batch.full(TRAIN.examples.x)
    logits = wider.predict(evaluated, batch)
    np.testing.assert_allclose(logits, TASK.predict(params, batch), rtol=1e-5)
