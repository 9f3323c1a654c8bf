import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pfljax import models
from pfljax.algorithms.distillation._batch_statistics import measure, measure_after
from pfljax.algorithms.fedavg import fedavg
from pfljax.conformance import toy
from pfljax.core import statistics, tree
from pfljax.core.types import Local

LOCAL = Local(0.1, batch_size=4, epochs=2)
TRAIN, _ = toy.ragged()


def task_of(momentum=0.0):
    body = nn.Sequential([nn.BatchNorm(momentum=momentum)])
    return models.task(models.Network(body, nn.Dense(3)), (3,))


def statistics_of(params):
    (kept,) = [
        leaves["batch_stats"]
        for leaves in params["body"].values()
        if "batch_stats" in leaves
    ]
    return kept


def whole_batch(momentum, k):
    """The statistics of client k, whose examples are one batch."""
    task = task_of(momentum)
    params = task.init(jax.random.key(0))
    local = LOCAL._replace(batch_size=32)
    after = measure(task, params, toy.one(TRAIN, k), toy.turn(), local)
    toy.assert_same(tree.parameters(after), tree.parameters(params))
    return statistics_of(after)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_one_batch_gives_its_mean_and_variance(momentum):
    first = int(TRAIN.offset[1])
    x = np.float64(TRAIN.examples.x[first : first + int(TRAIN.size[1])])
    found = whole_batch(momentum, 1)
    kept = 1 - momentum  # statistics begin at 0 and 1
    np.testing.assert_allclose(found["mean"], kept * x.mean(0), atol=1e-5)
    np.testing.assert_allclose(found["var"], momentum + kept * x.var(0), rtol=1e-4)


def test_batches_count_alike():
    """The mean of an epoch's batches; of equal batches, that of the examples."""
    data = toy.one(TRAIN, 1)  # 20 examples: five whole batches
    task = task_of()
    params = task.init(jax.random.key(0))
    after = statistics_of(measure(task, params, data, toy.turn(), LOCAL))
    x = np.float64(data.examples.x[int(data.offset) : int(data.offset) + 20])
    np.testing.assert_allclose(after["mean"], x.mean(0), atol=1e-5)
    # Within batches examples vary less than over all.
    assert (np.asarray(after["var"]) < x.var(0)).all()


def test_a_client_without_examples_keeps_what_there_is():
    task = task_of()
    params = task.init(jax.random.key(0))
    data = toy.one(TRAIN, 1)._replace(size=jnp.int32(0))
    toy.assert_same(measure(task, params, data, toy.turn(), LOCAL), params)


def test_the_cohort_measures_the_new_model_by_its_examples():
    method = measure_after(fedavg(task_of(), LOCAL), task_of(), LOCAL)
    server = task_of().init(jax.random.key(0))
    uploads = {
        "body/layers_0/batch_stats/mean": jnp.array([[1.0] * 3, [2.0] * 3, [9.0] * 3]),
        "body/layers_0/batch_stats/var": jnp.array([[4.0] * 3, [8.0] * 3, [9.0] * 3]),
    }
    assert method.then is not None
    cohort = toy.cohort([1, 1, 0], weight=[1.0, 3.0, 5.0])
    after = method.then.aggregate(server, uploads, cohort)
    toy.assert_same(tree.parameters(after), tree.parameters(server))
    np.testing.assert_allclose(statistics_of(after)["mean"], 7 / 4)
    np.testing.assert_allclose(statistics_of(after)["var"], 28 / 4)


def test_without_statistics_nothing_follows():
    method = fedavg(toy.classifier(), LOCAL)
    assert measure_after(method, toy.classifier(), LOCAL) is method
    assert statistics.has_any(task_of().groups)
