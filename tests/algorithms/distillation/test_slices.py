import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import models
from pfljax.algorithms.distillation import _slices as slices
from pfljax.conformance import toy
from pfljax.core import tree
from pfljax.core.communication import shapes_of_model

WHOLE = {"w": jnp.arange(12.0).reshape(3, 4), "b": jnp.arange(4.0)}
PART = {"w": jnp.ones((1, 2)), "b": jnp.ones(3)}


def task_of(*hidden):
    return models.task(models.mlp(3, hidden=hidden), (3,))


def test_the_corner_is_cut_and_put_back():
    corner = slices.cut(WHOLE, PART)
    np.testing.assert_array_equal(corner["w"], [[0, 1]])
    np.testing.assert_array_equal(corner["b"], [0, 1, 2])
    back = slices.embed(corner, WHOLE)
    np.testing.assert_array_equal(back["w"][0], [0, 1, 0, 0])
    assert not back["w"][1:].any()
    toy.assert_same(slices.cut(back, PART), corner)
    mask = slices.cover(PART, WHOLE)
    np.testing.assert_array_equal(mask["w"].sum(1), [2, 0, 0])
    np.testing.assert_array_equal(mask["b"], [1, 1, 1, 0])
    added = slices.add(WHOLE, PART)
    toy.assert_same(added, tree.add(WHOLE, mask))


def test_the_largest_holds_all():
    shapes = [shapes_of_model(task_of(*hidden)) for hidden in ((2, 4), (5, 4), (5, 1))]
    assert slices.largest(shapes) == 1


@pytest.mark.parametrize("hidden", [(2, 5), (2, 4, 4)])
def test_models_that_are_no_slices_are_refused(hidden):
    shapes = [shapes_of_model(task_of(*each)) for each in ((5, 4), hidden)]
    with pytest.raises(ValueError, match="differ in width alone, such as heterofl_a"):
        slices.largest(shapes)


def test_classes_are_an_axis_of_the_output_layer_alone():
    axes = slices.class_axes(task_of(3, 2))
    assert axes["head"] == {"kernel": 1, "bias": 0}
    none = slices.NO_CLASSES
    body = {"kernel": none, "bias": none}
    assert axes["body"] == {"layers_1": body, "layers_3": body}
    outputs_first = models.task(models.logistic(3), (4,))
    assert slices.class_axes(outputs_first)["head"] == {"kernel": 0, "bias": 0}
    # As many classes as inputs.
    square = models.task(models.logistic(4), (4,))
    assert slices.class_axes(square)["head"] == {"kernel": 0, "bias": 0}
    square = models.task(models.mlp(3, hidden=(5, 3)), (4,))
    assert slices.class_axes(square)["head"] == {"kernel": 1, "bias": 0}


def test_weights_are_by_client_and_in_the_output_layer_by_class():
    axes = {"w": slices.NO_CLASSES, "v": 0}
    sent = {"w": jnp.zeros((2, 4, 3)), "v": jnp.zeros((2, 3, 5))}
    present = jnp.array([[1.0, 0, 1], [0, 1, 1]])
    counts = slices.weights(sent, jnp.array([1.0, 2.0]), present, axes)
    np.testing.assert_array_equal(counts["w"].ravel(), [1, 2])
    np.testing.assert_array_equal(counts["v"][..., 0], [[1, 0, 1], [0, 2, 2]])


def test_means_are_over_those_who_hold_an_element():
    stacks = [
        (jnp.array([[1.0, 2], [3, 4]]), jnp.array([[1.0], [3]])),
        (jnp.array([[10.0]]), jnp.array([[1.0]])),
    ]
    mean = slices.counted_mean(stacks, jnp.array([7.0, 7, 7]))
    np.testing.assert_allclose(mean, [(1 + 9 + 10) / 5, (2 + 12) / 4, 7])
