import jax.numpy as jnp
import numpy as np
import pytest

from pfljax.algorithms import _example_outputs as example_outputs
from pfljax.conformance import toy
from pfljax.core.minibatches import minibatch
from pfljax.core.types import ClientData, Examples


def examples(offset=2, size=6):
    pool = Examples(x=jnp.arange(10.0)[:, None], y=jnp.arange(10) + 20)
    return ClientData(pool, offset=jnp.int32(offset), size=jnp.int32(size))


@pytest.mark.parametrize("batch_size", [1, 2, 4, 5, 9])
def test_outputs_are_in_the_order_of_the_examples(batch_size):
    index = jnp.array([5, 0, 0, 3, 1])
    seen = []

    def value(batch):
        seen.append(len(batch.y))
        return {"x": batch.x**2, "y": batch.y}

    outputs = example_outputs.compute_outputs(value, examples(), index, batch_size)
    np.testing.assert_array_equal(outputs["x"][:, 0], [49, 4, 4, 25, 9])
    np.testing.assert_array_equal(outputs["y"], [27, 22, 22, 25, 23])
    assert set(seen) == {min(batch_size, 5)}


def test_numbered_examples_say_which_they_are():
    data = example_outputs.number_examples(examples())
    batch = minibatch(data, jnp.int32(0), toy.turn().key, 6)
    np.testing.assert_array_equal(batch.x[:, 0], batch.y + 2)
    np.testing.assert_array_equal(np.sort(batch.y), np.arange(6))


def test_listed_rows_name_a_row_and_its_place():
    index = jnp.array([7, 3, 5])
    batch = minibatch(
        example_outputs.list_examples(index), jnp.int32(0), toy.turn().key, 3
    )
    np.testing.assert_array_equal(np.sort(batch.y), np.arange(3))
    np.testing.assert_array_equal(index[batch.y], batch.x)
