"""Uploads that are summed as they come: the same mean, and never a stack of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import algorithms, channel, engine, models, selection
from pfljax.algorithms.fedavg import fedavg
from pfljax.conformance import toy
from pfljax.core import components, tree
from pfljax.core.aggregation import Averaging
from pfljax.core.types import Cohort, Local
from pfljax.engine import chunked_vmap, summing

TASK = toy.classifier()
LOCAL = Local(0.1, batch_size=4, epochs=2)
CLIENTS = len(toy.SIZES)
COHORT = 5
ABSENT = 1  # a place in the cohort


def one_absent():
    """A uniform cohort, of whose places one does not report."""

    def work(state, key, ids, steps):
        return steps, (jnp.arange(COHORT) != ABSENT).astype(jnp.float32)

    return selection.uniform(COHORT, CLIENTS)._replace(work=work)


def setting_of(method, width=1, **more):
    return engine.Setting(method, LOCAL, one_absent(), width, **more)


def play(setting, rounds=2):
    """The state after some rounds, and the metrics."""
    train, _ = toy.ragged()
    state = engine.init(setting, TASK, CLIENTS, jax.random.key(1))
    return engine.compile_rounds(setting, rounds)(state, train, rounds)


def cohort_of(slots=COHORT):
    """A cohort, as `weight_of` reads it."""
    ones = jnp.ones(slots)
    ids = jnp.arange(slots)
    key = jax.random.key(0)
    return Cohort(ids, ones, ones, ones, CLIENTS, jnp.int32(0), key, None)


@pytest.fixture
def summed(monkeypatch):
    """Uploads of every size are summed."""
    monkeypatch.setattr(summing, "STACKED_BYTES", 0)


@pytest.mark.parametrize(
    "name", ["fedavg", pytest.param("superfed", marks=pytest.mark.slow)]
)
def test_a_sum_is_the_mean_of_the_stack(name, monkeypatch):
    method = algorithms.method(name)(TASK, LOCAL)
    stacked = play(setting_of(method))
    monkeypatch.setattr(summing, "STACKED_BYTES", 0)
    for width in (1, 2):
        toy.assert_close(play(setting_of(method, width)), stacked, 1e-6)


def test_most_methods_are_means():
    for name in ("fedavg", "fedprox", "fedper", "ditto", "apfl", "superfed"):
        assert isinstance(algorithms.method(name)(TASK, LOCAL).aggregate, Averaging)


@pytest.mark.usefixtures("summed")
@pytest.mark.parametrize("width", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_who_is_absent_adds_nothing_even_where_its_upload_is_not_finite(width):
    method = fedavg(TASK, LOCAL)
    plain, _ = play(setting_of(method, width), rounds=1)
    absent = plain.cohort[ABSENT]

    def train(turn, w, client, data):
        client, upload, metrics = method.train(turn, w, client, data)
        broken = tree.scale(upload, jnp.nan)
        return client, tree.where(turn.id == absent, broken, upload), metrics

    found, _ = play(setting_of(method._replace(train=train), width), rounds=1)
    toy.assert_same(found.server, plain.server)


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("used", [None, 4])
def test_each_term_counts_once_with_its_weight(width, used):
    """The filling of the last chunk has counted in its own place."""
    terms = np.array([1.0, 10, 100, 1000, 10_000], np.float32)
    weight = jnp.array([2.0, 1, 3, 1, 1 if used is None else 0])
    steps = jnp.array([5, 1, 9, 1, 0])
    places = None if used is None else jnp.int32(used)

    def f(term):
        return -term, {"term": term}

    results, total = chunked_vmap.sum_over_clients(
        f, (jnp.asarray(terms),), weight, steps, width, places
    )
    assert total["term"] == np.dot(terms, weight)
    ran = slice(None, used)
    np.testing.assert_array_equal(results[ran], -terms[ran])


def test_what_is_summed_depends_on_shapes_and_on_who_looks(monkeypatch):
    method = fedavg(TASK, LOCAL)
    server = jax.eval_shape(TASK.init, jax.random.key(0))
    size = tree.nbytes(server)

    def is_summed(width=1, method=method, names=()):
        way = channel.make([components.Component(name) for name in names])
        setting = setting_of(method, width, channel=way)
        return summing.upload_weights(setting, server, cohort_of()) is not None

    monkeypatch.setattr(summing, "STACKED_BYTES", COHORT * size)
    assert not is_summed()
    monkeypatch.setattr(summing, "STACKED_BYTES", COHORT * size - 1)
    assert is_summed()
    assert is_summed(width=4)
    # All at once: the vmap has all uploads anyway.
    assert not is_summed(width=5)
    assert not is_summed(width=None)
    assert is_summed(names=["clip", "gaussian"])
    assert not is_summed(names=["clip", "median"])
    other = method._replace(aggregate=lambda server, uploads, cohort: server)
    assert not is_summed(method=other)


def temporaries(cohort):
    """Bytes that a compiled round needs beside its arguments."""
    task = models.task(models.mlp(10, hidden=(256,)), (64,))
    select = selection.uniform(cohort, 100)
    setting = engine.Setting(fedavg(task, LOCAL), LOCAL, select, width=1)
    key = jax.random.key(0)
    state = jax.eval_shape(lambda key: engine.init(setting, task, 100, key), key)
    train, _ = toy.deal(np.zeros((400, 64)), np.zeros(400), [4] * 100)
    program = engine.compile_rounds(setting, 1).lower(state, train, 1).compile()
    return program.memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_a_larger_cohort_needs_no_more_memory_where_it_is_summed(monkeypatch):
    upload = 4 * (64 * 256 + 256 + 256 * 10 + 10)
    assert temporaries(20) - temporaries(4) > 15 * upload
    monkeypatch.setattr(summing, "STACKED_BYTES", 0)
    assert temporaries(20) - temporaries(4) < upload
