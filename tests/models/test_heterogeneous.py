import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import models
from pfljax.core.types import Batch
from pfljax.models import model_groups as groups
from pfljax.models.blocks import in_eights
from pfljax.models.feature_pooling import pool_features
from pfljax.models.googlenet import half_max

# One form of each kind of network. XLA's convolutions compile faster in deep ones.
NARROW = {
    "htcnn": {"channels": (4, 6), "hidden": (9, 7), "split": 1},
    "htcnn_yi2": {"hidden": 9, "features": 7},
    "htcnn_akt4": {"features": 9, "hidden": 7},
    "htfe_cnn": {"features": 7},
    "htresnet8": {"stem": 4, "features": 40, "hidden": (9,), "conv": "lax"},
    "resnet18_224": {"stem": 4, "features": 20},
    "resnet50_224": {"stem": 4, "conv": "lax"},
    "mobilenet_v2": {"width": 0.1, "features": 20, "conv": "lax"},
    "googlenet": {"width": 0.1, "norm": "batch", "conv": "lax"},
}
FEATURES = {
    "htcnn": 9,
    "htcnn_yi2": 7,
    "htcnn_akt4": 9,
    "htfe_cnn": 7,
    "htresnet8": 40,
    "resnet18_224": 20,
    "resnet50_224": 128,
    "mobilenet_v2": 20,
    "googlenet": 112,
}


DEEP = ("resnet18", "resnet50", "googlenet", "mobilenet_v2")
BY_DEPTH = [  # what is traced for seconds is slow
    pytest.param(name, marks=[pytest.mark.slow] if name.startswith(DEEP) else [])
    for name in NARROW
]


@functools.cache
def shapes_of(name, classes=10, side=32, **options):
    module = models.model(name, classes, **options)
    images = jax.ShapeDtypeStruct((1, side, side, 3), jnp.float32)
    return jax.eval_shape(module.init, jax.random.key(0), images)["params"]


def count(shapes):
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def draw(shapes):
    """Parameters from NumPy: an init per model would compile for seconds."""
    rng = np.random.default_rng(0)

    def draw_leaf(path, leaf):
        middle = float("scale" in jax.tree_util.keystr(path))  # of a norm
        return np.float32(rng.normal(middle, 0.2, leaf.shape))

    return jax.tree_util.tree_map_with_path(draw_leaf, shapes)


@functools.cache
def narrow_task(name):
    module = models.model(name, 10, **NARROW[name])
    return models.task(module, (32, 32, 3))


@functools.cache
def narrow_shapes(name):
    return jax.eval_shape(narrow_task(name).init, jax.random.key(0))


def images():
    rng = np.random.default_rng(1)
    return rng.normal(size=(3, 32, 32, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("number", "cifar10", "cifar100"),
    [
        (1, 2_621_558, 2_666_648),
        (2, 1_815_142, 1_860_232),
        (3, 1_320_558, 1_365_648),
        (4, 1_060_358, 1_105_448),
        (5, 670_058, 715_148),
    ],
)
def test_htcnn_yi_has_the_counts_of_the_papers(number, cifar10, cifar100):
    name = f"htcnn_yi{number}"
    assert count(shapes_of(name)) == cifar10
    of_100 = shapes_of(name, 100)
    assert count(of_100) == cifar100
    assert count(of_100["head"]) == 501 * 100  # the features are FC2's


@pytest.mark.parametrize(
    ("number", "at_32", "at_64", "head"),
    [
        (1, 1_654_696, 10_870_696, 1_101_100),
        (2, 1_627_880, 10_843_880, 880_900),
        (3, 829_064, 5_437_064, 660_700),
        (4, 408_632, 2_712_632, 440_500),
        (5, 815_048, 5_423_048, 550_600),
    ],
)
def test_htcnn_akt_has_the_counts_of_its_table(number, at_32, at_64, head):
    name = f"htcnn_akt{number}"
    of_100 = shapes_of(name, 100)
    assert count(of_100["body"]) == at_32
    assert count(of_100["head"]) == head
    assert count(shapes_of(name, side=64)["body"]) == at_64


@pytest.mark.parametrize(
    ("classes", "head"), [(10, 505_510), (100, 550_600), (200, 600_700)]
)
def test_heads_of_htcnn_akt_are_alike_with_one_hidden_width(classes, head):
    names = groups.GROUPS["htcnn_akt"]
    heads = [shapes_of(name, classes, hidden=500)["head"] for name in names]
    assert all(one == heads[0] for one in heads)
    assert count(heads[0]) == head


def test_an_assumption_says_that_it_is_one():
    for name in groups.GROUPS["htcnn_akt"]:
        assert "are an assumption" in models.MODELS[name].__doc__


def test_htfe_cnn_sends_what_fedtgp_counts():
    """Its table 5: 36.99 M of FML and 2.05 M of LG-FedAvg, of 20 clients both ways."""
    shapes = shapes_of("htfe_cnn", 100)
    assert 2 * 20 * count(shapes) == 36_988_320
    assert 2 * 20 * count(shapes["head"]) == 2_052_000


@pytest.mark.parametrize(
    ("depth", "backbone"),
    [
        (4, 83_520),
        (6, 313_664),
        (8, 1_232_704),
        (10, 4_905_792),
        (18, 11_176_512),
    ],
)
def test_htresnets_have_the_counts_of_htfllib(depth, backbone):
    name = f"htresnet{depth}"
    for norm in ("group", "batch"):
        shapes = shapes_of(name, 200, norm=norm, side=64)
        assert count(shapes["body"]) == backbone
        assert count(shapes["head"]) == 1001 * 200
    of_fedakt = shapes_of(name, 200, hidden=(500,))
    assert count(of_fedakt["head"]) == 1001 * 500 + 501 * 200


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("resnet18_224", 11_689_512),
        ("resnet50_224", 25_557_032),
        ("mobilenet_v2", 3_504_872),
        pytest.param("resnet152_224", 60_192_808, marks=pytest.mark.slow),
        pytest.param("googlenet", 6_624_904, marks=pytest.mark.slow),
    ],
)
def test_large_networks_have_the_counts_of_torchvision(name, total):
    assert count(shapes_of(name, 1000, norm="batch")) == total


@pytest.mark.parametrize(
    ("name", "sides"),
    [
        ("htresnet18", [112, 56, 28, 14, 7]),
        ("resnet34_224", [112, 56, 28, 14, 7]),
        ("mobilenet_v2", [112, 56, 28, 14, 7]),
        pytest.param("googlenet", [112, 56, 28, 14, 7], marks=pytest.mark.slow),
    ],
)
def test_images_shrink_as_in_the_papers(name, sides):
    """Counts of parameters do not show a stride where a global mean follows."""
    module = models.model(name, 10)

    def intermediates(x):
        _, sown = module.init_with_output(
            jax.random.key(0), x, capture_intermediates=True, mutable=True
        )
        return sown["intermediates"]

    x = jax.ShapeDtypeStruct((1, 224, 224, 3), jnp.float32)
    leaves = jax.tree.leaves(jax.eval_shape(intermediates, x))
    seen = {leaf.shape[1] for leaf in leaves if len(leaf.shape) == 4}
    assert sorted(seen, reverse=True) == sides


@pytest.mark.parametrize("name", BY_DEPTH)
def test_narrow_networks_are_tasks(name):
    task = narrow_task(name)
    params = draw(narrow_shapes(name))

    @jax.jit
    def features_and_logits(params, x):
        features = task.features(params, Batch.full(x), None)
        return features, task.head(params, features)

    features, logits = features_and_logits(params, images())
    assert features.shape == (3, FEATURES[name])
    assert logits.shape == (3, 10)
    assert np.isfinite(logits).all()
    assert np.ptp(logits, axis=0).max() > 1e-3  # examples differ: x reaches the head


@pytest.mark.parametrize("name", BY_DEPTH)
def test_every_leaf_is_of_body_or_head_and_of_a_module(name):
    task = narrow_task(name)
    structure = jax.tree.structure(narrow_shapes(name))
    assert jax.tree.structure(task.groups) == structure
    assert jax.tree.structure(task.modules) == structure
    assert set(jax.tree.leaves(task.groups)) == {"body", "head"}
    assert set(jax.tree.leaves(task.modules)) == set(range(task.num_modules))


@pytest.mark.parametrize(
    "name", [pytest.param("htresnet8", marks=pytest.mark.slow), "htcnn_akt4"]
)
def test_a_gradient_reaches_all_parameters(name):
    task = narrow_task(name)
    params = draw(narrow_shapes(name))
    batch = Batch.full(images(), jnp.arange(3))
    gradients = jax.jit(jax.grad(task.loss))(params, batch, jax.random.key(0))
    for path, gradient in jax.tree_util.tree_leaves_with_path(gradients):
        assert np.isfinite(gradient).all(), jax.tree_util.keystr(path)
        assert np.abs(gradient).max() > 0, jax.tree_util.keystr(path)


@pytest.mark.parametrize(
    ("features", "width"), [(64, 1000), (2048, 512), (10, 7), (5, 5)]
)
def test_columns_are_means_of_neighbouring_features(features, width):
    x = np.random.default_rng(0).normal(size=(3, features)).astype(np.float32)
    expected = np.empty((3, width))
    for column in range(width):
        first = column * features // width
        behind = int(np.ceil((column + 1) * features / width))
        expected[:, column] = x[:, first:behind].mean(1)
    np.testing.assert_allclose(pool_features(x, width), expected, atol=1e-5)


def test_wider_features_are_repeated_ones():
    """Of ResNet-4, 944 of the 1000 columns are one feature, and 56 a mean of two."""
    means = np.asarray(pool_features(np.eye(64, dtype=np.float32), 1000))
    assert np.linalg.matrix_rank(means) == 64
    per_column = (means > 0).sum(0)
    assert (per_column == 1).sum() == 944
    assert (per_column == 2).sum() == 56
    np.testing.assert_allclose(means.sum(0), 1)


@pytest.mark.parametrize(
    ("side", "size", "after"),
    [
        (7, 3, 3),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((12, 3, 6), (2, 3, 1), (7, 2, 4))
        ),
    ],
)
def test_a_last_square_may_reach_beyond_the_image(side, size, after):
    x = np.random.default_rng(0).normal(size=(2, side, side, 1)).astype(np.float32)
    maxima = half_max(x, size=size)
    assert maxima.shape == (2, after, after, 1)
    for row in range(after):
        for column in range(after):
            rows = slice(2 * row, 2 * row + size)
            columns = slice(2 * column, 2 * column + size)
            square = x[:, rows, columns]
            np.testing.assert_array_equal(maxima[:, row, column], square.max((1, 2)))


def test_narrow_channels_stay_multiples_of_eight():
    """Those of MobileNet v2 with a factor of 0.75, as torchvision rounds them."""
    channels = [16, 24, 32, 64, 96, 160, 320]
    narrow = [in_eights(count, 0.75) for count in channels]
    assert narrow == [16, 24, 24, 48, 72, 120, 240]
    assert [in_eights(count, 1.0) for count in channels] == channels


def test_groups_hold_models_of_the_zoo():
    for members in groups.GROUPS.values():
        assert set(members) <= set(models.MODELS)
    sizes = {name: len(members) for name, members in groups.GROUPS.items()}
    assert sizes == {
        "htcnn_yi": 5, "htcnn_akt": 5, "htresnet": 5,
        "htfe2": 2, "htfe3": 3, "htfe4": 4, "htfe8": 8, "htfe9": 9,
        "heterofl": 5,
    }  # fmt: skip
    # Slices have features of several widths.
    assert set(groups.FEATURES) == set(groups.GROUPS) - {"heterofl"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("htfe4", "htfe9") else ())
        for name in groups.FEATURES
        if name not in ("htfe2", "htfe3", "htfe8")  # parts of the other two
    ],
)
def test_models_of_a_group_have_heads_of_one_width(name):
    features = groups.FEATURES[name]
    for member in groups.GROUPS[name]:
        head = shapes_of(member, features=features)["head"]
        first = head.get("kernel", head.get("layers_0", {}).get("kernel"))
        assert first.shape[0] == features, member


def test_wrong_options_are_named():
    with pytest.raises(ValueError, match="split is 3; expected at most 2"):
        models.model("htcnn", 10, split=3)
    with pytest.raises(ValueError, match=r"dropout is 1.0; expected a number >= 0"):
        models.model("googlenet", 10, dropout=1.0)
