import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import algorithms, engine
from pfljax.conformance import toy
from pfljax.core.keys import derive
from pfljax.core.minibatches import minibatch
from pfljax.core.types import Batch, ClientData, Local
from pfljax.engine.plan import cohort_key
from pfljax.selection.draws import draw_weighted
from selecting import CLIENTS, SIZES, assert_proportional, draws, made, play


def test_all_candidates_are_a_draw_by_examples():
    select = made("power_of_choice", 1, candidates=1)
    found = draws(select, select.init(), 4000)
    assert_proportional(found, SIZES / SIZES.sum())


def test_the_greediest_takes_the_largest_losses():
    select = made("power_of_choice", candidates=CLIENTS)
    losses = jnp.array([3, 1, 4, 1.5, 9, 2.6, 5, 3.5])
    found = draws(select, losses, 20)
    assert (np.sort(found) == [2, 4, 6]).all()
    losses = losses.at[1].set(jnp.inf)  # never seen
    assert (draws(select, losses, 20)[:, 0] == 1).all()


def test_nobody_without_examples_is_a_candidate_before_others():
    sizes = np.where(np.arange(CLIENTS) < 4, 0, SIZES)
    select = made("power_of_choice", 2, candidates=4, sizes=sizes)
    assert (draws(select, select.init(), 200) >= 4).all()


def test_losses_are_those_of_the_last_report():
    select = made("power_of_choice", candidates=5)
    known = np.full(CLIENTS, np.inf)
    for round_ in play(select, 10):
        np.testing.assert_array_equal(round_.before, known.astype(np.float32))
        known[round_.ids] = round_.loss
        assert len(set(round_.ids)) == 3
    assert np.isfinite(known).all()  # who was never seen goes first


TRAIN, _ = toy.ragged()
TASK = toy.classifier()
LOCAL = Local(0.5, 4, epochs=2)
ROUNDS = 4


@functools.cache
def trained(loss, candidates=6, batch_size=4):
    """The states before and after each of some rounds of fedavg, in NumPy."""
    options = {"loss": loss, "candidates": candidates, "batch_size": batch_size}
    algorithm = algorithms.method("fedavg")(TASK, LOCAL)
    setting = engine.Setting(algorithm, LOCAL, made("power_of_choice", **options))
    program = engine.compile_rounds(setting, ROUNDS)
    state = engine.init(setting, TASK, CLIENTS, jax.random.key(3))
    states = []
    for _ in range(ROUNDS):
        state, _ = program(state, TRAIN, 1)
        states.append(jax.tree.map(jnp.copy, state))
    return states


def rows_of(client):
    start, size = int(TRAIN.offset[client]), int(TRAIN.size[client])
    x, y = TRAIN.examples
    return np.asarray(x[start : start + size]), np.asarray(y[start : start + size])


def mean_loss(model, x, y):
    """The cross-entropy of these examples in NumPy, of the task's logits."""
    logits = np.asarray(TASK.predict(model, Batch(x, y, np.ones(len(y)))), np.float64)
    logits -= logits.max(1, keepdims=True)
    chosen = logits[np.arange(len(y)), y]
    return (np.log(np.exp(logits).sum(1)) - chosen).mean()


def minibatch_of(client, key, batch_size):
    """The examples that a client draws without replacement, as `minibatch` does."""
    data = ClientData(TRAIN.examples, TRAIN.offset[client], TRAIN.size[client])
    batch = minibatch(data, jnp.int32(0), key, batch_size)
    came = np.asarray(batch.mask) > 0
    return np.asarray(batch.x)[came], np.asarray(batch.y)[came]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["all", "minibatch"])
def test_candidates_evaluate_the_new_model(loss):
    """Each cohort has the largest losses of its candidates, at the model it gets."""
    states = trained(loss)
    log_rows = jnp.log(jnp.asarray(SIZES, jnp.float32))
    known = np.full(CLIENTS, np.inf)
    for before, after in itertools.pairwise(states):
        key = cohort_key(before.key, before.round)
        candidates = np.asarray(draw_weighted(key, log_rows, 6))
        for client in candidates:
            examples = rows_of(client)
            if loss == "minibatch":
                batch_key = jax.random.fold_in(derive(key, "minibatch"), client)
                examples = minibatch_of(client, batch_key, 4)
            known[client] = mean_loss(before.server, *examples)
        np.testing.assert_allclose(before.selection, known, rtol=1e-4, atol=1e-6)
        largest = candidates[np.argsort(-known[candidates], kind="stable")[:3]]
        np.testing.assert_array_equal(after.cohort, largest)


def test_no_client_evaluates_the_first_model():
    """The first cohort is the first of the draw by size."""
    cohorts = [np.asarray(trained(loss)[0].cohort) for loss in ("all", "minibatch")]
    state = trained("all")[0]
    key = cohort_key(state.key, jnp.int32(0))
    log_rows = jnp.log(jnp.asarray(SIZES, jnp.float32))
    np.testing.assert_array_equal(cohorts[0], draw_weighted(key, log_rows, 3))
    np.testing.assert_array_equal(cohorts[1], cohorts[0])


@pytest.mark.slow
def test_a_minibatch_of_all_examples_is_all_examples():
    large = int(SIZES.max())
    pairs = zip(trained("minibatch", 6, large), trained("all"), strict=True)
    for of_minibatch, of_rows in pairs:
        np.testing.assert_array_equal(of_minibatch.cohort, of_rows.cohort)
        toy.assert_close(of_minibatch.selection, of_rows.selection)


@pytest.mark.slow
def test_as_many_candidates_as_places_are_a_draw_by_examples():
    for one, other in zip(trained("all", 3), trained("last", 3), strict=True):
        assert set(np.asarray(one.cohort)) == set(np.asarray(other.cohort))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"loss": "none"}, "loss is 'none'; expected 'last'"),
        ({"batch_size": 0}, "batch_size is 0; expected at least 1"),
        ({"candidates": 2}, "candidates is 2; expected 3 <= candidates <= 8"),
        ({"candidates": 9}, "candidates is 9; expected 3 <= candidates <= 8"),
        ({"cohort": 9}, "the cohort is 9, but 8 clients"),
    ],
)
def test_candidates_that_cannot_be(options, expected):
    with pytest.raises(ValueError, match=expected):
        made("power_of_choice", **options)
