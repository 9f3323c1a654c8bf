"""Sharpness, against SAM's and ASAM's points and quadratics in closed form."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from pfljax import landscape
from pfljax.conformance import toy
from pfljax.core.types import Batch, ClientData
from pfljax.evaluation import metrics
from pfljax.landscape.objective import Objective
from pfljax.landscape.sharpness import _sharpness

DATA = toy.ragged()[0]
TASK = toy.classifier()
PARAMS = TASK.init(jax.random.key(3))


def loss(w, unravel, x, y):
    """The mean loss of flat parameters, in the words of a textbook."""
    p = jax.nn.softmax(TASK.predict(unravel(w), Batch.full(x)))
    return -jnp.log(p[jnp.arange(len(y)), y]).mean()


def test_sharpness_is_the_rise_at_sams_point():
    data = toy.one(DATA, 1)
    w, unravel = ravel_pytree(PARAMS)
    own = slice(int(data.offset), int(data.offset + data.size))
    at = partial(loss, unravel=unravel, x=DATA.examples.x[own], y=DATA.examples.y[own])
    start, gradient = map(np.asarray, jax.jit(jax.value_and_grad(at))(w))
    sizes = [
        np.abs(p).ravel() + 0.01 if p.ndim > 1 else np.ones(p.shape)
        for p in jax.tree.leaves(PARAMS)
    ]
    t = np.concatenate(sizes)
    sam = 0.2 * gradient / np.linalg.norm(gradient)
    asam = 0.2 * t**2 * gradient / np.linalg.norm(t * gradient)
    for adaptive, shift in ((False, sam), (True, asam)):
        found = landscape.sharpness(TASK, PARAMS, data, rho=0.2, adaptive=adaptive)
        top = float(at(w + np.float32(shift)))
        assert found.rise == pytest.approx(top - start, rel=1e-4)
    evaluated = metrics.score(partial(TASK.predict, PARAMS), data, 10)
    assert found.loss == pytest.approx(float(evaluated["loss"]), rel=1e-5)


def test_sharpness_of_a_quadratic_in_closed_form():
    a, w = np.array([3.0, 1.0, 0.5]), np.array([0.2, -1.0, 2.0])

    def value_and_grad(w):
        return 0.5 * jnp.sum(a * w**2), a * w

    def rise(shift):
        return 0.5 * np.sum(a * ((w + shift) ** 2 - w**2))

    def unravel(w):
        return {"kernel": w[None]}

    def found(adaptive, w=w):
        own = Objective(jnp.asarray(w), value_and_grad, lambda v: a * v, unravel)
        return _sharpness(own, 0.3, adaptive)[0]

    g, t = a * w, np.abs(w) + 0.01
    one = rise(0.3 * g / np.linalg.norm(g))
    assert found(False) == pytest.approx(one, rel=1e-5)
    scaled = rise(0.3 * t**2 * g / np.linalg.norm(t * g))
    assert found(True) == pytest.approx(scaled, rel=1e-5)
    assert found(False, jnp.zeros(3)) == 0  # no way is up


def test_masked_examples_do_not_matter():
    """Examples of others and of the padding may hold anything finite."""
    data = toy.one(DATA, 2)
    index = np.arange(len(DATA.examples.x))
    own = (index >= data.offset) & (index < data.offset + data.size)
    x = np.where(own[:, None], DATA.examples.x, 1e3)
    other = ClientData(DATA.examples._replace(x=jnp.asarray(x)), *data[1:])
    for batch_size in (4, 256):
        found = [
            landscape.sharpness(TASK, PARAMS, d, rho=0.1, batch_size=batch_size)
            for d in (data, other)
        ]
        assert found[0] == found[1]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rho": -1}, "rho is -1"),
        ({"rho": np.nan}, "rho is nan"),
        ({"rho": [0.1, 0.2]}, "expected one positive radius"),
    ],
)
def test_what_cannot_be_is_refused(wrong, said):
    given = {"rho": 0.1} | wrong
    with pytest.raises(ValueError, match=said):
        landscape.sharpness(TASK, PARAMS, DATA, **given)


def test_another_radius_is_another_number_of_the_same_program():
    calls = []

    def predict(params, batch):
        calls.append(batch.x.shape)
        return TASK.predict(params, batch)

    task = TASK._replace(predict=predict)
    near = landscape.sharpness(task, PARAMS, DATA, rho=0.01)
    traced = len(calls)
    far = landscape.sharpness(task, PARAMS, DATA, rho=0.1)
    assert len(calls) == traced > 0
    assert near.rise.shape == (8,)
    assert (far.rise > near.rise).all()
    alone = landscape.sharpness(TASK, PARAMS, toy.one(DATA, 1), rho=0.1)
    assert far.rise[1] == pytest.approx(alone.rise, rel=1e-4)
