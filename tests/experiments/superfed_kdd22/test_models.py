"""The networks of SuPerFed's code."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import models
from pfljax.core import tree
from pfljax.models.blocks import Residual
from pfljax.models.kernel_layout import outputs_first


def build(name, shape, classes=10, **params):
    return models.task(models.model(name, classes, **params), shape)


def shapes_of(task):
    return jax.eval_shape(task.init, jax.random.key(0))


def count(task, group):
    shapes, _ = tree.split(shapes_of(task), tree.matches(task.groups, group))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "body", "head"),
    [
        ("twonn_superfed", (784,), 10, 196_800, 42_000),
        ("twocnn_superfed", (28, 28, 3), 10, 53_600, 669_200),
        ("resnet9_superfed", (28, 28, 3), 100, 4_898_112, 156_672),
        ("mobilenet_superfed", (64, 64, 3), 200, 182_208, 182_272),
        ("vgg9_superfed", (28, 28, 1), 62, 1_571_472, 146_944),
        ("char_lstm_superfed", (80,), 100, 795_424, 25_600),
    ],
)
def test_parameter_counts_are_those_of_the_code(name, shape, classes, body, head):
    task = build(name, shape, classes)
    assert (count(task, "body"), count(task, "head")) == (body, head)


@pytest.mark.slow
def test_narrow_networks_are_narrow_in_every_layer():
    wide, narrow = (
        jax.tree.leaves(shapes_of(build("resnet9_superfed", (28, 28, 3), **stem)))
        for stem in ({}, {"stem": 16})
    )
    outputs = {(w.shape[-1], n.shape[-1]) for w, n in zip(wide, narrow, strict=True)}
    assert outputs == {(64, 16), (128, 32), (256, 64), (512, 128), (256, 256), (10, 10)}
    task = build("char_lstm_superfed", (80,), 100, hidden=64)
    assert count(task, "body") == 100 * 8 + 4 * 64 * (8 + 64) + 4 * 64 * (64 + 64)
    assert count(task, "head") == 6_400


@pytest.mark.parametrize(
    ("name", "side", "sides"),
    [
        ("resnet9_superfed", 28, [14, 7, 4, 2]),
        ("mobilenet_superfed", 64, [32, 30, 14, 6, 4]),
        ("vgg9_superfed", 28, [28, 14, 7, 3]),
        ("twocnn_superfed", 28, [26, 12]),
    ],
)
def test_images_shrink_as_in_the_paper(name, side, sides):
    """Counts of parameters do not show a stride where a global mean follows."""
    module = models.model(name, 10)

    def outputs(x):
        _, sown = module.init_with_output(
            jax.random.key(0), x, capture_intermediates=True, mutable=True
        )
        return sown["intermediates"]

    x = jax.ShapeDtypeStruct((1, side, side, 3), jnp.float32)
    shapes = [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(outputs, x))]
    found = {shape[1] for shape in shapes if len(shape) == 4}
    assert sorted(found, reverse=True) == sides


@pytest.mark.slow
def test_the_only_biases_are_those_of_batch_normalisation():
    for name, shape in (("twonn_superfed", (784,)), ("vgg9_superfed", (28, 28, 1))):
        paths = tree.paths(shapes_of(build(name, shape)))
        assert all(path.endswith("kernel") for path in paths)
    for name in ("resnet9_superfed", "mobilenet_superfed"):
        paths = [*tree.paths(shapes_of(build(name, (64, 64, 3))))]
        ends = [path.rpartition("/")[::2] for path in paths]
        biased = {module for module, leaf in ends if leaf == "bias"}
        assert biased == {module for module, leaf in ends if leaf == "scale"}
        assert len(biased) >= 9


@pytest.mark.slow
def test_weights_are_xaviers():
    params = jax.jit(build("twonn_superfed", (28, 28)).init)(jax.random.key(0))
    kernel = params["body"]["layers_1"]["kernel"]
    np.testing.assert_allclose(kernel.std(), np.sqrt(2 / (784 + 200)), rtol=0.02)


def test_images_that_shrink_to_nothing_are_refused():
    with pytest.raises(ValueError, match="window of 3x3 pixels got an image of 2x2"):
        build("mobilenet_superfed", (32, 32, 3))
    assert build("mobilenet", (32, 32, 3)).num_modules  # it pads


def test_the_first_block_of_resnet9_has_no_skip():
    blocks = models.model("resnet9_superfed", 10).body.layers
    skips = [b.skip is None for b in blocks if isinstance(b, Residual)]
    assert skips == [False, False, False]


def test_both_layers_of_the_lstm_are_one_module():
    """SuPerFed-LM draws one lambda for both."""
    task = build("char_lstm_superfed", (80,), 100)
    lstm = task.modules["body"]["layers_1"]
    assert set(lstm.values()) == {1}
    assert len(lstm) == 4
    assert task.num_modules == 3
    found = outputs_first(models.model("char_lstm_superfed", 3))
    ends = ("i", "h", "i_1", "h_1")
    assert found == {f"body/layers_1/kernel_{end}" for end in ends}
