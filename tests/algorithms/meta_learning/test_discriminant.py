from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms.meta_learning import _discriminant as discriminant
from pfljax.algorithms.meta_learning._discriminant import Gaussians
from pfljax.conformance import toy
from pfljax.core.types import Batch

TASK = toy.classifier()
ADAPT = jax.jit(partial(discriminant.adapt, TASK))
SHARES = jnp.array([0.5, 0.3, 0.2])


def drawn(count, seed=0):
    """Features of three classes with their own means."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 3
    x = rng.normal(size=(count, 4)) + 2 * rng.normal(size=(3, 4))[y]
    return Batch.full(jnp.asarray(x, jnp.float32), jnp.asarray(y))


def test_two_classes_of_one_round_covariance():
    """Their plane is the perpendicular bisector, shifted by the log of the shares."""
    mean = np.array([[1.0, 0, 2], [-1, 3, 0]])
    shares = np.array([0.8, 0.2])
    z = np.random.default_rng(0).normal(size=(5, 3))
    gaussians = Gaussians(jnp.asarray(mean), jnp.eye(3))
    head = discriminant.discriminant(gaussians, jnp.asarray(shares))
    a = discriminant.logits(head, jnp.asarray(z))
    wanted = (z - mean.mean(0)) @ (mean[0] - mean[1]) + np.log(4)
    np.testing.assert_allclose(a[:, 0] - a[:, 1], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_shift_of_all_features_changes_no_decision():
    rows, shift = drawn(20), jnp.array([3.0, -2, 1, 5])
    known = Gaussians(jnp.asarray(drawn(3, 1).x), 2 * jnp.eye(4))

    def decide(shift):
        moved = known._replace(mean=known.mean + shift)
        batch = rows._replace(x=rows.x + shift)
        found = ADAPT(batch, moved, SHARES, 0.1)
        a = discriminant.logits(discriminant.discriminant(found, SHARES), batch.x)
        return a - a[:, :1]

    np.testing.assert_allclose(decide(shift), decide(0 * shift), rtol=1e-3, atol=2e-3)


@pytest.mark.slow
def test_without_two_examples_of_a_class_the_known_ones_are_kept():
    known = Gaussians(jnp.asarray(drawn(3, 1).x), 2 * jnp.eye(4))
    rows = drawn(20)._replace(mask=(jnp.arange(20) < 3).astype(jnp.float32))
    found = ADAPT(rows, known, SHARES, 0.1)
    toy.assert_close(found, known, 1e-6)
