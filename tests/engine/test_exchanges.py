"""Several exchanges in a round, and uploads that differ by architecture."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import channel, engine, models, selection
from pfljax.algorithms.distillation.feddf import feddf
from pfljax.algorithms.fedavg import fedavg
from pfljax.channel import count_traffic
from pfljax.conformance import toy
from pfljax.core import aggregation, tree
from pfljax.core.components import parse
from pfljax.engine.setting import Groups
from pfljax.simulate import architectures
from pfljax.simulate.shape import Shape

TASK, LOCAL = toy.quadratic(), toy.full_batch(epochs=2)
TRAIN = toy.quadratic_clients()
AVERAGED = fedavg(TASK, LOCAL)


def setting_of(method, through=()):
    choices = [parse(text) for text in through]
    select = selection.uniform(3, 4)
    return engine.Setting(method, LOCAL, select, channel=channel.make(choices))


def after_a_round(setting, state=None):
    state = state or engine.init(setting, TASK, 4, jax.random.key(0))
    return jax.jit(partial(engine.one_round, setting))(state, TRAIN)[0]


def test_two_exchanges_are_two_rounds_of_one_cohort():
    twice = after_a_round(setting_of(AVERAGED._replace(then=AVERAGED)))
    once = after_a_round(setting_of(AVERAGED))
    # The first round again: the same cohort, from the server that it left.
    again = after_a_round(setting_of(AVERAGED), once._replace(round=jnp.int32(0)))
    toy.assert_same(twice.server, again.server)
    assert not np.array_equal(toy.flat(once.server), toy.flat(twice.server))
    assert int(twice.round) == 1
    toy.assert_same(twice.participations, once.participations)


def test_what_is_then_has_noise_of_its_own():
    def train(turn, message, client, data):
        return client, tree.zeros(message), {"loss": jnp.float32(0)}

    still = AVERAGED._replace(
        train=train,
        aggregate=lambda w, sent, cohort: tree.add(
            w, aggregation.mean(sent, cohort.mask)
        ),
        origin=lambda message, client, upload: upload,
    )
    start = toy.flat(engine.init(setting_of(still), TASK, 4, jax.random.key(0)).server)
    noise = []
    for method in (still, still._replace(then=still)):
        state = after_a_round(setting_of(method, ["gaussian:std=1.0"]))
        noise.append(toy.flat(state.server) - start)
    once, twice = noise
    assert np.abs(once).min() > 0
    assert np.abs(twice - 2 * once).min() > 1e-3


def test_a_metric_of_two_exchanges_is_refused():
    def train(*given):
        client, upload, metrics = AVERAGED.train(*given)
        return client, upload, metrics | {"mine": jnp.float32(0)}

    twice = AVERAGED._replace(train=train, then=AVERAGED._replace(train=train))
    with pytest.raises(ValueError, match=r"two exchanges .* the metric 'mine'"):
        after_a_round(setting_of(twice))


def test_traffic_counts_every_exchange():
    once = count_traffic(AVERAGED, TASK, 4, (4,))
    twice = count_traffic(AVERAGED._replace(then=AVERAGED), TASK, 4, (4,))
    assert twice == (2 * once.down, 2 * once.up)
    assert once.up > 0


def test_senders_of_a_stack_stand_at_their_places():
    cohort = toy.cohort([1, 0, 1], num_clients=9, weight=[5.0, 6.0, 7.0])
    cohort = cohort._replace(ids=jnp.array([4, 8, 2]))
    places = {0: jnp.array([2, 3]), 1: jnp.array([0, 1])}
    first, second = aggregation.senders(cohort._replace(places=places)).values()
    np.testing.assert_array_equal(first.ids, [2, 9])
    np.testing.assert_array_equal(first.weight, [7, 0])
    np.testing.assert_array_equal(first.mask, [1, 0])
    np.testing.assert_array_equal(second.ids, [4, 8])
    np.testing.assert_array_equal(second.mask, [1, 0])


def test_gathered_has_the_absent_last():
    cohort = toy.cohort([1, 0, 1], num_clients=9)._replace(ids=jnp.array([4, 1, 2]))
    sent, who = aggregation.gather(jnp.array([40, 10, 20]), cohort)
    np.testing.assert_array_equal(sent, [20, 40, 10])
    np.testing.assert_array_equal(who.mask, [1, 1, 0])


@pytest.fixture(scope="module")
def two():
    tasks = [models.task(models.mlp(3, hidden=(width,)), (3,)) for width in (4, 6)]
    return architectures.link_tasks(tuple(tasks))


def test_traffic_of_several_architectures_is_the_mean_of_clients(two):
    methods = tuple(feddf(task, LOCAL) for task in two)
    groups = Groups(methods, two, (0, 1, 1))
    setting = setting_of(methods[0])._replace(groups=groups)
    sent = architectures.mean_traffic(setting, two[0], Shape(3, (3,), 3))
    small, large = (4 * (3 * w + w + 3 * w + 3) for w in (4, 6))
    assert sent == (round((small + 2 * large) / 3),) * 2
