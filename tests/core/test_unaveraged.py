import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pfljax import Experiment, models
from pfljax.algorithms.decoupling.fedper import fedper
from pfljax.algorithms.global_model.scaffold import scaffold
from pfljax.algorithms.multi_task.ditto import ditto
from pfljax.conformance import toy
from pfljax.core import tree
from pfljax.core.types import Local
from pfljax.core.unaveraged import UNSENT, leave_unsent
from pfljax.models.layers import BatchNorm, flatten
from pfljax.simulate import components
from pfljax.simulate.components import Shape

LOCAL = Local(0.1, batch_size=4, epochs=2)


def biases(state):
    """(those named so, all other leaves) of a state, by path."""
    leaves = tree.paths(state)
    own = {path: leaf for path, leaf in leaves.items() if path.endswith(UNSENT)}
    return own, {path: leaf for path, leaf in leaves.items() if path not in own}


def model_of(server):
    """The parameters in a server's state."""
    return server.x if hasattr(server, "x") else server


@pytest.mark.parametrize("factory", [ditto, scaffold, fedper])
def test_a_server_keeps_its_own_and_averages_the_rest(factory):
    body = nn.Sequential([BatchNorm(UNSENT), flatten])
    task = models.task(models.Network(body, nn.Dense(3)), (1, 1, 2))
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(76, 1, 1, 2)), rng.integers(0, 3, 76)
    train, _ = toy.deal(*rows, toy.SIZES)
    method = factory(task, LOCAL)
    plain, _ = toy.play(method, task, LOCAL, train, rounds=2)
    states, _ = toy.play(leave_unsent(method), task, LOCAL, train, rounds=2)
    for round_ in (1, 2):
        own, others = biases(model_of(states[round_].server))
        theirs, averaged = biases(model_of(plain[round_].server))
        assert own
        assert all(not leaf.any() for leaf in own.values())
        assert all(np.abs(leaf).min() > 1e-4 for leaf in theirs.values())
        if round_ == 1:  # before it nothing differed
            toy.assert_same(others, averaged)
    if factory is scaffold:  # c is the mean of all c_k, of these parameters, too
        mean = jax.tree.map(lambda leaf: leaf.mean(0), states[2].clients)
        toy.assert_close(states[2].server.c, mean, 1e-6)
        assert all(np.abs(leaf).min() > 1e-4 for leaf in biases(mean)[0].values())
    if factory is ditto:  # a client's own model keeps what it learnt
        kept, _ = biases(states[2].clients)
        assert all(np.abs(leaf).min() > 1e-4 for leaf in kept.values())


def test_a_model_says_so_by_the_name_of_its_normalisation():
    sent = {}
    for norm in ("batch", "batch_superfed"):
        e = Experiment(model=f"mobilenet_superfed:norm={norm}", algorithm="fedavg")
        shape = Shape(5, (40, 40, 3), 10, 0.0, 1.0, None)
        task = components.make_task(e, shape)
        aggregate = components.make_setting(e, task, shape).algorithm.aggregate
        params = task.init(jax.random.key(0))
        uploads = jax.tree.map(lambda leaf: jnp.stack([leaf + 1] * 2), params)
        cohort = toy.cohort(jnp.ones(2), 5)
        change = tree.sub(aggregate(params, uploads, cohort), params)
        sent[norm] = {k: float(v.min()) for k, v in tree.paths(change).items()}
    assert min(sent["batch"].values()) > 0.99
    stay = {path for path, least in sent["batch_superfed"].items() if least == 0}
    assert stay == {path for path in sent["batch_superfed"] if path.endswith(UNSENT)}
    assert len(stay) == 9
