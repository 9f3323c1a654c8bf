"""A comparison is of methods: cohorts, stragglers and minibatches are the same."""

import jax
import numpy as np
import pytest

from pfljax import engine, selection
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.global_model.feddyn import feddyn
from pfljax.algorithms.global_model.fednova import fednova
from pfljax.algorithms.global_model.fedprox import fedprox
from pfljax.algorithms.global_model.fedprox_adaptive import fedprox_adaptive
from pfljax.algorithms.global_model.scaffold import scaffold
from pfljax.conformance import toy
from pfljax.core.types import Local

LOCAL = Local(0.1, batch_size=4, epochs=4)
ROUNDS, COHORT = 3, 4
PROX = {"mu": 0.5}


def seen(factory, drop, **options):
    """(cohorts, numbers of reports, examples of every training batch) of the rounds."""
    batches = []

    def loss(params, batch, key):
        # With a key: minibatches of training, and no passes over all examples.
        if key is not None:
            total = (batch.x * batch.mask[:, None]).sum(0)
            jax.debug.callback(batches.append, total)
        return toy.quadratic().loss(params, batch, key)

    task = toy.quadratic()._replace(loss=loss)
    select = selection.stragglers(selection.uniform(COHORT, 8), 0.5, 4, drop)
    # One after another, and so in one order of all batches.
    setting = engine.Setting(factory(task, LOCAL, **options), LOCAL, select, width=1)
    state = engine.init(setting, task, 8, jax.random.key(0))
    step = jax.jit(lambda state, data: engine.one_round(setting, state, data))
    cohorts, reported = [], []
    for _ in range(ROUNDS):
        state, metrics = step(state, toy.noisy_clients())
        cohorts.append(state.cohort)
        reported.append(metrics["reported"])
    jax.effects_barrier()
    in_order = sorted(map(tuple, np.array(batches).tolist()))
    return np.array(cohorts), np.array(reported), np.array(in_order)


@pytest.fixture(scope="module")
def of_fedavg():
    """FedAvg, which drops stragglers after they have worked."""
    return seen(fedavg, drop=True)


@pytest.mark.parametrize(
    ("factory", "options"),
    [
        (fedprox, PROX),
        pytest.param(fedprox_adaptive, PROX, marks=pytest.mark.slow),
        pytest.param(fednova, {}, marks=pytest.mark.slow),
        pytest.param(feddyn, {}, marks=pytest.mark.slow),
        pytest.param(scaffold, {}, marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_methods_see_the_same_cohorts_stragglers_and_minibatches(
    factory, options, of_fedavg
):
    cohorts, reported, batches = seen(factory, drop=False, **options)
    expected_cohorts, expected_reported, expected_batches = of_fedavg
    np.testing.assert_array_equal(cohorts, expected_cohorts)
    np.testing.assert_array_equal(batches, expected_batches)
    # Half of four are late: they are dropped by the one, and kept by the other.
    assert (expected_reported == COHORT / 2).all()
    assert (reported == COHORT).all()
    everything = sum(4 * -(-toy.SIZES[k] // 4) for k in cohorts.ravel())
    assert len(batches) < everything
