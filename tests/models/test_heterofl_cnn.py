import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pfljax import models
from pfljax.algorithms.distillation._slices import largest
from pfljax.core import tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.types import Batch
from pfljax.models import model_groups as groups
from pfljax.models.batch_norm import mask_and_mode
from pfljax.models.heterofl_cnn import EPSILON, Scaled

NARROW = {"channels": (6, 8), "conv": "lax"}


@functools.cache
def task_of(level, **options):
    options = NARROW | options
    return models.task(models.model(f"heterofl_{level}", 3, **options), (4, 4, 2))


def images():
    x = np.random.default_rng(0).normal(size=(5, 4, 4, 2))
    return Batch.full(jnp.asarray(x, jnp.float32), jnp.array([0, 1, 2, 0, 1]))


@pytest.mark.parametrize(
    ("level", "mnist", "cifar10"),
    [
        ("a", 1_556_874, 1_558_026),
        ("c", 98_922, 99_210),
        ("e", 6_594, 6_666),
    ],
)
def test_the_counts_are_those_of_the_widths(level, mnist, cifar10):
    """Kernel and bias, scale and shift of each block; the dense layer."""
    rate = {"a": 1, "b": 2, "c": 4, "d": 8, "e": 16}[level]
    widths = [width // rate for width in (64, 128, 256, 512)]
    for channels, shape, known in ((1, (28, 28), mnist), (3, (32, 32, 3), cifar10)):
        inputs = [channels, *widths[:-1]]
        blocks = [
            9 * before * width + 3 * width
            for before, width in zip(inputs, widths, strict=True)
        ]
        assert sum(blocks) + 10 * widths[-1] + 10 == known
        task = models.task(models.model(f"heterofl_{level}", 10), shape)
        leaves = jax.tree.leaves(tree.parameters(shapes_of_model(task)))
        assert sum(leaf.size for leaf in leaves) == known


def test_levels_are_slices_and_round_up():
    tasks = [
        task_of(name.removeprefix("heterofl_")) for name in groups.GROUPS["heterofl"]
    ]
    assert largest([shapes_of_model(task) for task in tasks]) == 0
    widths = [task.feature_shape for task in tasks]
    assert widths == [(8,), (4,), (2,), (1,), (1,)]
    first = shapes_of_model(tasks[2])["body"]["layers_1"]["bias"]
    assert first.shape == (2,)  # of 6 / 4


def test_the_scaler_is_a_division_before_the_norm_in_training():
    x = 1e-3 * images().x  # so small that epsilon is felt
    layer = Scaled(1 / 16)
    key = {"dropout": jax.random.key(1)}
    with mask_and_mode(jnp.ones(len(x)), training=True):
        variables = layer.init(jax.random.key(0), x)
        ours, after = layer.apply(variables, x, rngs=key, mutable=["batch_stats"])
    norm = nn.BatchNorm(use_running_average=False, epsilon=EPSILON)
    explicit = {"params": variables["params"]["BatchNorm_0"]}
    theirs, _ = norm.apply(explicit, x * 16, mutable=["batch_stats"])
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    # What evaluation normalises is not divided.
    kept = after["batch_stats"]["BatchNorm_0"]
    np.testing.assert_allclose(kept["mean"], x.mean((0, 1, 2)), rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize(
    "norm", ["static", pytest.param("group", marks=pytest.mark.slow), "none"]
)
def test_the_scaler_is_off_in_evaluation(norm):
    batch = images()
    scaled, plain = (task_of("b", norm=norm, scaler=scaler) for scaler in (True, False))
    params = jax.jit(plain.init)(jax.random.key(0))
    small = jax.tree.map(lambda leaf: 1e-3 * leaf, params)
    for w in (params, small):
        a, b = (jax.jit(task.predict)(w, batch) for task in (scaled, plain))
        np.testing.assert_array_equal(a, b)
    key = jax.random.key(1)
    # Small activations, where epsilon is felt.
    a, b = (jax.jit(task.logits)(small, batch, key) for task in (scaled, plain))
    assert not np.allclose(a, b, rtol=0.1, atol=0)
    at_one = task_of("a", norm=norm), task_of("a", norm=norm, scaler=False)
    params = jax.jit(at_one[0].init)(key)
    a, b = (jax.jit(task.logits)(params, batch, key) for task in at_one)
    np.testing.assert_array_equal(a, b)


def test_without_norm_activations_grow_by_the_rate():
    task = task_of("b", norm="none", channels=(6,))
    params = task.init(jax.random.key(0))
    params["body"]["layers_1"]["bias"] += 0.1
    batch = images()
    trained = task.features(params, batch, jax.random.key(1))
    np.testing.assert_allclose(
        trained, 2 * task.features(params, batch, None), rtol=1e-5
    )


def test_rates_above_one_are_refused():
    with pytest.raises(ValueError, match=r"rate is 2.+ expected above 0, up to 1"):
        models.model("heterofl_cnn", 10, rate=2.0)
