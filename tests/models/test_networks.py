from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pfljax import models
from pfljax.core import tree
from pfljax.core.types import Batch, ClientData, Examples
from pfljax.evaluation import metrics
from pfljax.models import blocks as parts
from pfljax.models import layers

# Of the models that are tested here; test_heterogeneous.py has the others.
SHAPES = {
    "logistic": (8, 8),
    "mlp": (64,),
    "twonn": (8, 8),
    "twocnn": (8, 8),
    "gn_cnn": (8, 8),
    "cifar_cnn": (8, 8, 3),
    "char_lstm": (12,),
    "transformer": (12,),
    "resnet9": (28, 28, 3),
    "resnet18": (8, 8, 3),
    "mobilenet": (40, 40, 3),
    "vgg9": (28, 28),
}
DEEP = ("resnet18", "mobilenet")
# Of the models that take seconds to compile.
NARROW = {"resnet9": {"stem": 8}, "resnet18": {"stem": 8}}


def build(name, shape, classes=10, **params):
    scale = 1.0 if name.startswith("char_lstm") else 16.0  # tokens stay as they are
    return models.task(models.model(name, classes, **params), shape, scale=scale)


def shapes_of(task):
    return jax.eval_shape(task.init, jax.random.key(0))


def draw_params(task):
    """Parameters from NumPy: an init per model would compile for seconds."""
    rng = np.random.default_rng(0)

    def draw(path, leaf):
        middle = float("scale" in jax.tree_util.keystr(path))  # of a norm
        return np.float32(rng.normal(middle, 0.1, leaf.shape))

    return jax.tree_util.tree_map_with_path(draw, shapes_of(task))


def count(task, group=None):
    shapes = shapes_of(task)
    if group:
        shapes, _ = tree.split(shapes, tree.matches(task.groups, group))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


@pytest.mark.parametrize(
    ("name", "shape", "total", "head"),
    [
        ("logistic", (28, 28), 7_850, 7_850),
        ("mlp", (64,), 4_810, 650),
        ("twonn", (28, 28), 199_210, 2_010),
        ("twocnn", (28, 28), 1_663_370, 5_130),
        ("twonn", (784,), 199_210, 2_010),
        ("twocnn", (32, 32, 3), 2_156_490, 5_130),
        ("cifar_cnn", (32, 32, 3), 1_626_442, 1_290),
        ("gn_cnn", (8, 8), 21_482, 2_570),
        ("gn_cnn", (32, 32, 3), 60_458, 40_970),
    ],
)
def test_parameter_counts_are_those_of_the_papers(name, shape, total, head):
    task = build(name, shape)
    assert count(task) == total
    assert count(task, "head") == head
    assert count(task, "body") == total - head


@pytest.mark.parametrize(
    ("name", "shape", "classes", "body", "head"),
    [
        # without a bias a unit, and biases and scales of the norms: SuPerFed's counts
        ("resnet9", (28, 28, 3), 100, 4_898_112 + 2_880, 156_672 + 356),
        ("mobilenet", (64, 64, 3), 200, 182_208 + 1_472, 182_272 + 456),
        ("vgg9", (28, 28, 1), 62, 1_571_472 + 1_008, 146_944 + 318),
    ],
)
def test_deep_networks_have_the_widths_of_superfeds(name, shape, classes, body, head):
    task = build(name, shape, classes)
    assert count(task, "body") == body
    assert count(task, "head") == head


@pytest.mark.slow
def test_resnet18_has_the_layers_of_the_paper():
    """He et al., 2016, table 1, with the stem of their section 4.2 and no biases."""
    channels = np.array([64, 128, 256, 512])
    before = np.array([64, 64, 128, 256])
    # Four convolutions a stage; the first stage has no projection.
    convolutions = 9 * (before * channels + 3 * channels**2)
    projections = (before * channels)[1:]
    # Scale and bias of every normalisation: the stem's, and the projections' too.
    norms = 2 * (64 + 4 * channels.sum() + channels[1:].sum())
    body = 9 * 3 * 64 + convolutions.sum() + projections.sum() + norms
    for norm in ("group", "batch"):
        task = build("resnet18", (32, 32, 3), norm=norm)
        assert count(task, "body") == body
        assert count(task, "head") == 513 * 10
        assert count(task) == 11_173_962


def test_narrow_networks_are_narrow_in_every_layer():
    wide, narrow = (
        jax.tree.leaves(shapes_of(build("resnet9", (28, 28, 3), **stem)))
        for stem in ({}, {"stem": 16})
    )
    outputs = {(w.shape[-1], n.shape[-1]) for w, n in zip(wide, narrow, strict=True)}
    assert outputs == {(64, 16), (128, 32), (256, 64), (512, 128), (256, 256), (10, 10)}


@pytest.mark.parametrize(
    ("name", "side", "sides"),
    [
        ("resnet9", 28, [14, 7, 4, 2]),
        ("resnet18", 32, [32, 16, 8, 4]),
        ("mobilenet", 64, [32, 16, 8]),
        ("vgg9", 28, [28, 14, 7, 3]),
    ],
)
def test_images_shrink_as_in_the_papers(name, side, sides):
    """Counts of parameters do not show a stride where a global mean follows."""
    module = models.model(name, 10)

    def outputs(x):
        found, sown = module.init_with_output(
            jax.random.key(0), x, capture_intermediates=True, mutable=True
        )
        return found, sown["intermediates"]

    x = jax.ShapeDtypeStruct((1, side, side, 3), jnp.float32)
    shapes = [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(outputs, x)[1])]
    found = {shape[1] for shape in shapes if len(shape) == 4}
    assert sorted(found, reverse=True) == sides


@pytest.mark.parametrize("name", SHAPES)
def test_groups_and_modules_label_every_leaf(name):
    task = build(name, SHAPES[name])
    shapes = shapes_of(task)
    structure = jax.tree.structure(shapes)
    assert jax.tree.structure(task.groups) == structure
    assert jax.tree.structure(task.modules) == structure
    assert set(jax.tree.leaves(task.groups)) <= {"body", "head"}
    numbers = set(jax.tree.leaves(task.modules))
    assert numbers == set(range(task.num_modules))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[pytest.mark.slow] * (name in ("resnet18", "resnet9", "mobilenet")),
        )
        for name in SHAPES
    ],
)
def test_predict_is_head_of_features_and_uint8_is_float(name):
    task = build(name, SHAPES[name], **NARROW.get(name, {}))
    x = np.random.default_rng(0).integers(0, 17, (3, *SHAPES[name]), np.uint8)

    params = draw_params(task)

    @jax.jit
    def three(params, x):
        batch = Batch.full(x)
        head = task.head(params, task.features(params, batch, None))
        floats = Batch.full(x.astype(float))
        return task.predict(params, batch), head, task.predict(params, floats)

    logits, head, floats = three(params, x)
    assert logits.shape == (3, 10)
    assert np.ptp(logits, axis=0).max() > 1e-3  # rows differ: x reaches the head
    np.testing.assert_allclose(logits, head, atol=1e-5)
    np.testing.assert_allclose(logits, floats, atol=1e-5)


def test_modules_share_kernel_and_bias_in_forward_order():
    task = build("gn_cnn", (8, 8))
    body = task.modules["body"]
    assert body["layers_1"] == {"kernel": 0}
    assert body["layers_2"] == {"bias": 1, "scale": 1}
    assert body["layers_5"] == {"kernel": 2}
    assert body["layers_6"] == {"bias": 3, "scale": 3}
    assert task.modules["head"] == {"bias": 4, "kernel": 4}


def test_modules_of_a_deep_model_are_not_in_the_order_of_their_names():
    task = build("mlp", (64,), hidden=(3,) * 6)  # layers_1, 3, ..., 11
    assert task.modules["body"]["layers_11"] == {"bias": 5, "kernel": 5}
    assert task.modules["body"]["layers_3"] == {"bias": 1, "kernel": 1}


def test_convolutions_agree():
    params = draw_params(build("twocnn", (6, 6)))
    x = np.random.default_rng(0).normal(size=(2, 6, 6))
    ours, theirs = (
        jax.jit(build("twocnn", (6, 6), conv=conv).predict)(params, Batch.full(x))
        for conv in ("im2col", "lax")
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_logistic_is_x_times_kernel_plus_bias():
    task = build("logistic", (8, 8))
    params = task.init(jax.random.key(0))
    params["head"]["bias"] = jnp.arange(10.0)
    x = np.arange(128.0, dtype=np.float32).reshape(2, 8, 8)
    expected = x.reshape(2, 64) / 16 @ params["head"]["kernel"].T + np.arange(10)
    logits = task.predict(params, Batch.full(x))
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    spread = params["head"]["kernel"].std()
    np.testing.assert_allclose(spread, np.sqrt(1 / 64), rtol=0.15)


def test_factories_make_linen_modules():
    assert all(isinstance(make(10), nn.Module) for make in models.MODELS.values())


@pytest.mark.parametrize(
    ("name", "num_classes", "params", "message"),
    [
        (
            "resnet",
            10,
            {},
            "unknown model .resnet.; did you mean 'resnet101_224'",
        ),
        ("mlp", 0, {}, "expected 1 or more"),
        ("mlp", 10, {"width": 3}, "unknown parameter .width.; known: hidden"),
        ("logistic", 10, {"l2": 1}, "known: none"),
        ("twocnn", 10, {"conv": "fft"}, "known: auto"),
        ("resnet9", 10, {"stem": 0}, "stem is 0; expected at least 1"),
        ("char_lstm", 10, {"hidden": -1}, "hidden is -1; expected at least 1"),
        ("char_lstm", 10, {"layers": 0}, "layers is 0; expected at least 1"),
    ],
)
def test_wrong_models_are_named(name, num_classes, params, message):
    with pytest.raises(ValueError, match=message):
        models.model(name, num_classes, **params)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((784,), "expected images"),
        ((2, 2), "1x1 pixels"),
        ((3, 32, 32), r"3x32 pixels with 32 .* \[B, H, W, C\]: .*e\(0, 2, 3, 1\)"),
        ((3, 48, 64), "3x48 pixels with 64 channels"),
        ((1, 28, 28), "1x28 pixels with 28 channels"),
    ],
)
def test_images_that_a_cnn_cannot_take_are_named(shape, message):
    with pytest.raises(ValueError, match=message):
        build("gn_cnn", shape)


@pytest.mark.parametrize("shape", [(1, 128, 9), (3, 3, 512), (1, 1, 64), (3, 128, 6)])
def test_flat_images_of_many_channels_are_taken(shape):
    x = np.zeros((2, *shape))
    assert layers.add_channel(x) is x


def test_a_channel_is_normalised_by_the_examples_at_hand():
    x = np.random.default_rng(0).normal(3, 5, (4, 6, 6, 2)).astype(np.float32)
    norm = layers.BatchNorm()
    y = norm.apply({"params": {"scale": np.ones(2), "bias": np.zeros(2)}}, x)
    flat = x.reshape(-1, 2)
    wanted = (flat - flat.mean(0)) / np.sqrt(flat.var(0) + 1e-5)
    np.testing.assert_allclose(y.reshape(-1, 2), wanted, rtol=1e-4, atol=1e-5)


def _normed(x, rows):
    """x [N, 1, 1, 2] normalised in batches of `rows` rows, the last maybe short."""
    parts = np.split(x, range(rows, len(x), rows))
    return np.concatenate(
        [(p - p.mean(0)) / np.sqrt(p.var(0) + 1e-5) for p in parts]
    ).reshape(-1, 2)


def test_batches_are_normalised_apart_and_padding_does_not_count():
    x = np.random.default_rng(0).normal(3, 5, (47, 1, 1, 2)).astype(np.float32)
    y = np.arange(47) % 2
    body = nn.Sequential([layers.BatchNorm(), layers.flatten])
    task = models.task(models.Network(body, nn.Dense(2)), (1, 1, 2))
    params = jax.jit(task.init)(jax.random.key(0))
    head = jax.device_get(params["head"])

    def expected(rows):
        logits = _normed(x, rows) @ np.asarray(head["kernel"]) + head["bias"]
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        return -log_p[np.arange(47), y]

    data = ClientData(Examples(x, y), np.int32(0), np.int32(47))
    predict = partial(task.predict, params)
    for at_once in (20, 60):  # 47 rows: two batches of 20, one of 7
        found = metrics.score(predict, data, 20, at_once)
        assert float(found["loss"]) == pytest.approx(expected(20).mean(), rel=1e-5)
    place = np.minimum(np.arange(64), 46)
    padded = Batch(x[place], y[place], np.arange(64) < 47)
    loss = float(jax.jit(task.loss)(params, padded, jax.random.key(0)))
    assert loss == pytest.approx(expected(47).mean(), rel=1e-5)
    for key in (None, jax.random.key(0)):
        features = jax.jit(task.features)(params, padded, key)[:47]
        np.testing.assert_allclose(features, _normed(x, 47), rtol=1e-4, atol=1e-5)


def test_the_first_block_of_resnet9_adds_its_input():
    blocks = models.model("resnet9", 10).body.layers
    skips = [b.skip is None for b in blocks if isinstance(b, parts.Residual)]
    assert skips == [True, False, False, False]


def test_a_residual_block_adds_its_input():
    double = nn.Dense(3, use_bias=False)
    params = {"params": {"branch": {"kernel": 2 * np.eye(3)}}}
    x = np.array([[1.0, -1.0, 0.5]])
    y = parts.Residual(double, None).apply(params, x)
    np.testing.assert_allclose(y, [[3.0, 0.0, 1.5]])
