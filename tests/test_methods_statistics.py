"""Every method on a model with running statistics."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import declared
from pfljax import algorithms, models
from pfljax.algorithms.decoupling.fedbn import fedbn
from pfljax.algorithms.decoupling.fedper import fedper
from pfljax.algorithms.distillation.fedakt import fedakt
from pfljax.algorithms.distillation.fedkd import fedkd
from pfljax.algorithms.distillation.fml import fml
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.multi_task.ditto import ditto
from pfljax.channel import count_traffic
from pfljax.conformance import toy
from pfljax.core import aggregation, statistics, tree
from pfljax.core.communication import trace_exchanges
from pfljax.core.local_statistics import drop, keep
from pfljax.core.optimizers import sgd
from pfljax.core.training import budget
from pfljax.core.types import Local
from pfljax.evaluation import programs

LOCAL = Local(0.1, batch_size=4, epochs=2, optimizer=sgd(0.9, 1e-3))
TRAIN, TEST = toy.ragged()
CLIENTS = len(TRAIN.size)
RUNNING = 2 * 4  # mean and variance of four channels


def first_is_fast(first, *others):
    """The others, which guard the same rule, are slow tests."""
    return [first, *(pytest.param(other, marks=pytest.mark.slow) for other in others)]


# One of each way to aggregate, send or train.
METHODS = first_is_fast(
    "fedavg", "scaffold", "fednova", "feddyn", "per_fedavg", "pfedhn", "ditto",
    "fedamp", "fedem", "fedala", "apfl", "floco", "ifca", "fedproto", "fedgkt",
    "heterofl", "pfedvem", "virtual", "q_fedavg", "fedsam", "perfcl",
)  # fmt: skip


@cache
def task():
    body = nn.Sequential([nn.Dense(4), nn.BatchNorm(momentum=0.9), nn.relu])
    return toy.traced_once(models.task(models.Network(body, nn.Dense(3)), (3,)))


def running(params):
    """The statistics alone."""
    return jax.tree.leaves(tree.split(params, statistics.mask(params))[0])


def evaluate(setting, state):
    ids = jnp.arange(CLIENTS)
    return programs.evaluate_clients(setting, "personal")(
        state, state.clients, ids, TRAIN, TEST
    )


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_statistics_and_stays_finite(name):
    factory = algorithms.method(name)
    options = declared.of_all()[name][0].options
    given = toy.run_options(factory, rounds=2)
    method = factory(task(), LOCAL, **options, **given)
    states, setting = toy.run_rounds(method, task(), LOCAL, TRAIN, rounds=2)
    first, last = states[0], states[-1]
    assert all(np.isfinite(leaf).all() for leaf in toy.arrays(last))
    before, after = (running((s.server, s.clients)) for s in (first, last))
    assert any(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    for path, leaf in jax.tree_util.tree_leaves_with_path((last.server, last.clients)):
        if statistics.is_statistic(path) and path[-1].key == "var":
            assert leaf.min() >= 0  # so are the zeros of SCAFFOLD's variates
    assert np.isfinite(evaluate(setting, last)["loss"]).all()


def test_statistics_are_averaged_with_the_parameters():
    method = fedavg(task(), LOCAL)
    states, _ = toy.run_rounds(method, task(), LOCAL, TRAIN, rounds=1)
    one = [train_alone(method, states[0], k)[1] for k in range(CLIENTS)]
    weight = np.asarray(TRAIN.size, np.float64) / np.sum(TRAIN.size)
    for parts in zip(running(states[1].server), *map(running, one), strict=True):
        server, *uploads = map(np.asarray, parts)
        np.testing.assert_allclose(server, weight @ np.stack(uploads), rtol=1e-5)


def train_alone(method, state, k):
    """(client state, upload) of client k in the coming round."""
    data = toy.one(TRAIN, k)
    client = tree.take(state.clients, k)
    steps = budget(LOCAL, data.size)
    turn = toy.turn(toy.turn_key(state, k), state.round, steps, k, CLIENTS)
    message = method.message(turn, state.server, client)
    return jax.jit(method.train)(turn, message, client, data)[:2]


@pytest.mark.slow
@pytest.mark.parametrize("factory", first_is_fast(fedavg, fedper, ditto))
def test_kept_statistics_stay_with_their_client(factory):
    plain, method = factory(task(), LOCAL), keep(factory(task(), LOCAL))
    states, setting = toy.run_rounds(method, task(), LOCAL, TRAIN, rounds=2, cohort=4)
    began = task().init(jax.random.key(5))
    for leaf, start in zip(
        running(states[-1].server), running(began), strict=True
    ):  # zeros and ones, whatever the key
        np.testing.assert_array_equal(leaf, start)
    means = states[-1].clients.statistics["body/layers_1/batch_stats/mean"]
    trained = np.asarray(means).any(1)
    assert 4 <= trained.sum() < CLIENTS
    assert len(np.unique(means[trained], axis=0)) == trained.sum()
    bytes_of = [count_traffic(m, task(), CLIENTS, (3,)) for m in (plain, method)]
    assert bytes_of[0].up - bytes_of[1].up == 4 * RUNNING
    assert bytes_of[0].down - bytes_of[1].down == 4 * RUNNING
    assert np.isfinite(evaluate(setting, states[-1])["loss"]).all()


@pytest.mark.slow
def test_a_client_alone_is_the_same_whether_it_keeps_statistics_or_sends_them():
    data = jax.tree.map(lambda leaf: leaf[:1], TRAIN._replace(examples=()))
    data = data._replace(examples=TRAIN.examples)
    plain, _ = toy.run_rounds(fedavg(task(), LOCAL), task(), LOCAL, data, rounds=3)
    own, _ = toy.run_rounds(keep(fedavg(task(), LOCAL)), task(), LOCAL, data, rounds=3)
    theirs = tree.paths(plain[-1].server)
    statistics_kept = own[-1].clients.statistics
    assert len(statistics_kept) == 2
    for name, leaf in statistics_kept.items():
        np.testing.assert_allclose(leaf[0], theirs[name], rtol=1e-5, atol=1e-6)
    toy.assert_close(tree.parameters(own[-1].server), tree.parameters(plain[-1].server))


@pytest.mark.slow
@pytest.mark.parametrize("factory", first_is_fast(fedakt, fml, fedkd))
def test_statistics_of_a_proxy_stay_with_their_client(factory):
    method = factory(task(), LOCAL)
    states, setting = toy.run_rounds(method, task(), LOCAL, TRAIN, rounds=2, cohort=4)
    for first, last in zip(*(running(s.server) for s in states[::2]), strict=True):
        np.testing.assert_array_equal(first, last)
    took_part = np.asarray(states[-1].participations) > 0
    assert 4 <= took_part.sum() < CLIENTS
    for leaf in states[-1].clients.statistics.values():
        assert len(np.unique(leaf[took_part], axis=0)) == took_part.sum()
        assert len(np.unique(leaf[~took_part])) == 1
    sent, *_ = trace_exchanges(method, task(), CLIENTS, (3,))
    assert not running((sent.message, sent.origin, sent.upload))
    assert np.isfinite(evaluate(setting, states[-1])["loss"]).all()


@pytest.mark.slow
def test_statistics_of_a_proxy_that_trains_alone_are_those_of_silobn():
    """Of FML with beta = 1, where v is uniform FedAvg's."""
    init = task().init(jax.random.key(3))
    one = task()._replace(init=lambda key: init)
    uniform = aggregation.averaging("uniform")
    plain = keep(fedavg(one, LOCAL)._replace(aggregate=uniform))
    ours, theirs = (
        toy.run_rounds(method, one, LOCAL, TRAIN, rounds=2, cohort=4)[0][-1].clients
        for method in (fml(one, LOCAL, beta=1.0), plain)
    )
    toy.assert_close(ours.statistics, theirs.statistics)


@pytest.mark.slow
def test_statistics_of_a_proxy_that_sends_differences_add_up(monkeypatch):
    """FedKD without distillation, of all energy: its mentee is uniform FedAvg's too."""
    distance = "pfljax.algorithms.distillation.fedkd.distance"
    monkeypatch.setattr(distance, lambda own, other, batch: 0.0)
    init = task().init(jax.random.key(3))
    one = task()._replace(init=lambda key: init)
    methods = (
        fml(one, LOCAL, beta=1.0),
        fedkd(one, LOCAL, energy_start=1.0, energy_end=1.0),
    )
    theirs, ours = (
        toy.run_rounds(method, one, LOCAL, TRAIN, rounds=2, cohort=4)[0][-1].clients
        for method in methods
    )
    toy.assert_close(ours.statistics, theirs.statistics)


@pytest.mark.slow
def test_bytes_of_low_rank_are_those_of_parameters():
    method = fedkd(task(), LOCAL, energy_start=1.0, energy_end=1.0)
    states, _ = toy.run_rounds(method, task(), LOCAL, TRAIN, rounds=1)
    sent, *_ = trace_exchanges(method, task(), CLIENTS, (3,))
    for state in states:
        assert float(state.server.size) == tree.nbytes(sent.upload)


@pytest.mark.slow
def test_dropped_statistics_begin_each_round_anew():
    method = drop(fedavg(task(), LOCAL))
    states, _ = toy.run_rounds(method, task(), LOCAL, TRAIN, rounds=2)
    for first, last in zip(*(running(s.server) for s in states[::2]), strict=True):
        np.testing.assert_array_equal(first, last)
    plain, _ = toy.run_rounds(fedavg(task(), LOCAL), task(), LOCAL, TRAIN, rounds=2)
    # Training uses the statistics of its batches, so the parameters are the same.
    toy.assert_close(
        tree.parameters(states[-1].server), tree.parameters(plain[-1].server)
    )


@pytest.mark.slow
def test_fedbn_keeps_all_of_normalisation():
    method = fedbn(task(), LOCAL)
    states, setting = toy.run_rounds(method, task(), LOCAL, TRAIN, rounds=2)
    norm = tree.paths(states[-1].clients)
    assert {name.rsplit("/", 1)[1] for name in norm} == {"mean", "var", "scale", "bias"}
    assert not any("layers_1" in name for name in tree.paths(states[-1].server))
    assert all(len(np.unique(leaf, axis=0)) == CLIENTS for leaf in norm.values())
    assert np.isfinite(evaluate(setting, states[-1])["loss"]).all()
