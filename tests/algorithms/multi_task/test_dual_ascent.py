"""Which models are linear; the ascent itself is in multi_task/test_mocha.py."""

import jax.numpy as jnp
import pytest
from flax import linen as nn

from pfljax import models
from pfljax.conformance import toy
from pfljax.core.linear import is_linear
from pfljax.models.layers import flatten

ONES = nn.initializers.ones


class Twice(nn.Module):
    """Linear in x, of two matrices in one layer: not in these."""

    @nn.compact
    def __call__(self, x):
        first, second = self.param("a", ONES, (3, 4)), self.param("b", ONES, (4, 2))
        return x @ first @ second


class Bounded(nn.Module):
    """One matrix, and then what is not linear."""

    @nn.compact
    def __call__(self, x):
        return jnp.tanh(x @ self.param("a", ONES, (3, 2)))


def with_body(*layers, head=None):
    body = nn.Sequential([flatten, *layers])
    return models.task(models.Network(body, head or nn.Dense(2)), (3,))


LINEAR = {
    "logistic": models.task(models.logistic(2), (2, 3)),
    "of features that are fixed": with_body(nn.tanh),
    "without a bias": with_body(head=nn.Dense(2, use_bias=False)),
}
OTHERS = {
    "mlp": models.task(models.mlp(2), (2, 3)),
    "quadratic": toy.quadratic(),
    "layers without activations": with_body(nn.Dense(4)),
    "two matrices": with_body(head=Twice()),
    "an activation after it": with_body(head=Bounded()),
    "layers in its head": with_body(head=nn.Sequential([nn.Dense(4), nn.Dense(2)])),
}


@pytest.mark.parametrize("task", LINEAR.values(), ids=LINEAR)
def test_linear_models_are_known(task):
    assert is_linear(task)


@pytest.mark.parametrize("task", OTHERS.values(), ids=OTHERS)
def test_others_are_known(task):
    assert not is_linear(task)
