"""The loss that training reports is F_k of the stepped model, without penalties.

All examples of a quadratic client are equal, so every minibatch has the loss F_k.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.clustering.ifca import ifca
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.global_model.fedprox import fedprox
from pfljax.algorithms.global_model.scaffold import scaffold
from pfljax.algorithms.interpolation.apfl import apfl
from pfljax.algorithms.interpolation.superfed import superfed
from pfljax.algorithms.local import local
from pfljax.algorithms.meta_learning.aruba import aruba
from pfljax.algorithms.meta_learning.per_fedavg import per_fedavg
from pfljax.algorithms.meta_learning.reptile import reptile
from pfljax.algorithms.multi_task.ditto import ditto
from pfljax.algorithms.multi_task.pfedme import pfedme
from pfljax.conformance import toy

TASK = toy.quadratic()
LOCAL = toy.full_batch()
KEY = jax.random.key(2)
K = 1
START = np.float32([1, -2, 3])


def own_loss(w):
    """F_k, in NumPy."""
    return toy.A[K] / 2 * ((w - toy.B[K]) ** 2).sum()


@cache
def training(method):
    """The program of a turn of client k from START, of the number of steps."""

    def train(steps):
        params = toy.unflat(START)
        server = method.init(params, 4, KEY)
        client = method.init_client(params, jnp.int32(K), KEY)
        turn = toy.turn(KEY, 0, steps, K)
        message = method.message(turn, server, client)
        data = toy.one(toy.quadratic_clients(), K)
        return method.train(turn, message, client, data)

    return jax.jit(train)


def trained(method, steps):
    """(client state, upload, metrics) of client k after `steps` from START."""
    return training(method)(steps)


def sent(client, upload):
    return toy.flat(upload)


# The method, and its stepped model, of the state and upload after training.
CASES = {
    "fedavg": (fedavg(TASK, LOCAL), sent),
    "fedprox": (fedprox(TASK, LOCAL, mu=3.0), sent),
    "scaffold": (
        scaffold(TASK, LOCAL),
        lambda c_k, upload: START + toy.flat(upload.dy),
    ),
    "apfl": (apfl(TASK, LOCAL), sent),
    "superfed": (superfed(TASK, LOCAL, start=1.0, mu=3.0), sent),
    "local": (local(TASK, LOCAL), lambda w, upload: toy.flat(w)),
    "per_fedavg": (per_fedavg(TASK, LOCAL, inner_lr=0.3), sent),
    "ditto": (ditto(TASK, LOCAL, lam=3.0), sent),
    "pfedme": (pfedme(TASK, LOCAL), lambda theta, upload: toy.flat(theta)),
    "reptile": (reptile(TASK, LOCAL), sent),
    "aruba": (
        aruba(TASK, LOCAL),
        lambda client, upload: toy.flat(upload.theta),
    ),
    "ifca": (
        ifca(TASK, LOCAL, clusters=1),
        lambda client, upload: toy.flat(upload.params),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_loss_is_of_the_data_at_the_stepped_model(name):
    method, stepped = CASES[name]
    client, upload, metrics = trained(method, steps=1)
    first = own_loss(START)
    assert float(metrics["loss"]) == pytest.approx(first, rel=1e-5)
    second = own_loss(stepped(client, upload))
    assert second != pytest.approx(first, rel=1e-2)
    _, _, metrics = trained(method, steps=2)
    assert float(metrics["loss"]) == pytest.approx((first + second) / 2, rel=1e-5)


@pytest.mark.parametrize(("name", "factor"), [("fedprox", 1.5), ("superfed", 3.0)])
def test_a_penalty_is_a_metric_of_its_own_at_the_last_model(name, factor):
    method, stepped = CASES[name]
    client, upload, metrics = trained(method, steps=2)
    penalty = factor * ((stepped(client, upload) - START) ** 2).sum()
    assert float(metrics["penalty"]) == pytest.approx(penalty, rel=1e-5)
