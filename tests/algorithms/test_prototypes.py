import jax
import jax.numpy as jnp
import numpy as np

import perceptron
from pfljax.algorithms import _prototypes as prototypes
from pfljax.algorithms._classes import class_counts
from pfljax.conformance import toy
from pfljax.core.types import Batch, ClientData, Examples

TASK = toy.classifier()
BATCH = Batch.full(jnp.ones((2, 3)))
PARAMS = TASK.init(jax.random.key(4))


def test_prototypes_of_a_client_are_means_over_its_examples_by_class():
    """Whatever the batches, of which the last is short: 20 = 3 * 6 + 2."""
    x, y = perceptron.examples(1)
    z = perceptron.features(perceptron.weights(PARAMS), x)
    mean, count = perceptron.by_class(z, y)
    assert len(set(count)) > 1
    for batch_size in (6, 32):
        data = toy.one(toy.ragged()[0], 1)
        result = prototypes.from_client(TASK, PARAMS, data, batch_size)
        np.testing.assert_allclose(result.mean, mean, rtol=1e-5)
        np.testing.assert_array_equal(result.count, count)


def test_a_class_without_examples_has_no_prototype_and_no_nan():
    pool = Examples(jnp.ones((3, 3)), jnp.array([2, 2, 0]))
    data = ClientData(pool, jnp.int32(0), jnp.int32(2))
    result = prototypes.from_client(TASK, PARAMS, data, 2)
    np.testing.assert_array_equal(result.count, [0, 0, 2])
    np.testing.assert_array_equal(result.mean[:2], 0)
    nobody = prototypes.from_client(TASK, PARAMS, data._replace(size=jnp.int32(0)), 2)
    toy.assert_same(nobody, prototypes.none(TASK))


def test_presence_says_no_number():
    known = prototypes.none(TASK)._replace(count=jnp.array([5.0, 0, 1]))
    np.testing.assert_array_equal(prototypes.present(known).count, [1, 0, 1])


def test_the_norm_has_a_slope_at_zero():
    value, slope = jax.vmap(jax.value_and_grad(prototypes.norm))(jnp.array([0.0, 4]))
    np.testing.assert_allclose(value, [0, 2])
    np.testing.assert_allclose(slope, [0, 1 / 4])


def test_the_width_is_that_of_the_features():
    z = jax.eval_shape(lambda: TASK.features(PARAMS, BATCH, None))
    assert TASK.feature_shape == z.shape[1:] == (4,)
    assert prototypes.width(TASK._replace(feature_shape=(2, 3, 5))) == 30


def test_classes_of_a_client_are_counted_on_its_own_examples():
    """In whatever batches; the pool has all classes."""
    pool = Examples(jnp.ones((6, 3)), jnp.array([1, 0, 2, 0, 0, 1]))
    data = ClientData(pool, jnp.int32(1), jnp.int32(4))
    for batch_size in (2, 3, 8):
        found = class_counts(data, 4, batch_size)
        np.testing.assert_array_equal(found, [3, 0, 1, 0])
    nobody = data._replace(size=jnp.int32(0))
    np.testing.assert_array_equal(class_counts(nobody, 4, 2), 0)
