"""Convex sums of many models, against the models made by hand."""

import jax
import numpy as np
import pytest

from pfljax import landscape
from pfljax.conformance import toy

TASK = toy.classifier()
TEST = landscape.pooled(toy.ragged()[1])


def test_sums_are_convex_and_their_excess_is_over_the_models_values():
    models = jax.vmap(TASK.init)(jax.random.split(jax.random.key(1), 4))
    models = jax.tree.map(lambda leaf: 3 * np.asarray(leaf), models)
    found = landscape.group(TASK, models, TEST, draws=3, seed=2)
    assert found.weights.shape == (4, 4)
    np.testing.assert_array_equal(found.weights[0], 1 / 4)
    np.testing.assert_allclose(found.weights.sum(1), 1)
    assert len(set(found.weights[1:].ravel())) == 12
    one = [jax.tree.map(lambda leaf, k=k: leaf[k], models) for k in range(4)]
    for name, sign in (("loss", 1), ("accuracy", -1)):
        alone = [
            landscape.line(TASK, w, w, TEST, t=(0, 1)).metrics[name][0] for w in one
        ]
        np.testing.assert_allclose(found.models[name], alone, rtol=1e-5)
        excess = landscape.group_barrier(found, name)
        for w, value in zip(found.weights, excess, strict=True):
            at = jax.tree.map(
                lambda leaf, w=w: np.float32(np.tensordot(w, leaf, 1)), models
            )
            own = landscape.line(TASK, at, at, TEST, t=(0, 1)).metrics[name][0]
            assert value == pytest.approx(sign * (own - w @ alone), abs=1e-5)
        assert np.abs(excess).max() > 0.01
