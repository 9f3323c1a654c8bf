"""TF32 and bfloat16: what computes in them, and what stays float32."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from jax import export, lax

from pfljax import models
from pfljax.core import statistics, tree
from pfljax.core.precision import PRECISIONS
from pfljax.core.types import Batch
from pfljax.models import layers, mixed_precision
from traced import equations

KEY = jax.random.key(0)
PRODUCTS = ("dot_general", "conv_general_dilated")
TOKENS = 1000  # more than bfloat16 can count
SMALL = {
    "gn_cnn": {"channels": (4,)},
    "char_lstm": {"hidden": 8, "layers": 1},
    "transformer": {"features": 8, "layers": 1},
}
# Of an example.
LENGTHS = {"char_lstm": 12, "transformer": 12, "matrix_factorization": 2}
BRANCHED = ("resnet", "htresnet", "mobilenet", "googlenet")
DEEP = tuple(name for name in models.MODELS if name.startswith(BRANCHED))
# Other depths and widths of these.
ALIKE = ("htcnn_", "htresnet1", "htresnet3", "resnet34", "resnet101", "resnet152")
ALIKE += tuple(f"heterofl_{level}" for level in "abde")
BY_DEPTH = [
    pytest.param(name, marks=[pytest.mark.slow] if name in DEEP else [])
    for name in models.MODELS
    # Adapters multiply factors in float32, and the kernels are then lowered.
    if not name.startswith((*ALIKE, "lora", "fedpara"))
]


def build(name, precision="float32", **options):
    return models.task(
        models.model(name, 10, **options), shape_of(name), precision=precision
    )


def shape_of(name):
    """Of an example: tokens, large images where they shrink often, or small ones."""
    if name in LENGTHS:
        return (LENGTHS[name],)
    wide = name in (*DEEP, "vgg9") or name.startswith(("htcnn", "htfe"))
    return (32, 32, 3) if wide else (8, 8, 3)


def examples(name, count=4):
    rng = np.random.default_rng(0)
    if name in LENGTHS:
        x = rng.integers(0, 80, (count, *shape_of(name)), np.uint8)
    else:
        x = rng.normal(size=(count, *shape_of(name))).astype(np.float32)
    return Batch.full(x, jnp.arange(count) % 10)


def products_of(task, name):
    """The products of a training step, forward and backward, on every platform."""
    params = jax.eval_shape(task.init, KEY)
    step = jax.value_and_grad(task.loss)
    traced = jax.make_jaxpr(step)(params, examples(name), KEY)
    assert {v.aval.dtype for v in traced.jaxpr.outvars} == {jnp.dtype("float32")}
    found = [e for e in equations(traced.jaxpr) if e.primitive.name in PRODUCTS]
    # A product has two gradients, but where nothing before it is stepped.
    assert len(found) >= 2
    return found


@pytest.mark.parametrize("name", BY_DEPTH)
def test_every_product_of_every_model_is_of_bfloat16(name):
    for product in products_of(build(name, "bfloat16"), name):
        kinds = {variable.aval.dtype for variable in product.invars}
        assert kinds == {jnp.dtype("bfloat16")}, product


@pytest.mark.parametrize("name", ["twocnn", "char_lstm"])
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_products_and_their_gradients_say_how_exact_they_are(name, precision):
    """Those that are written by hand too: they are traced out of the context."""
    exact = lax.Precision.HIGHEST if precision == "float32" else lax.Precision.HIGH
    for product in products_of(build(name, precision), name):
        assert product.params["precision"] == (exact, exact), product
        kinds = {variable.aval.dtype for variable in product.invars}
        assert kinds == {jnp.dtype("float32")}


@pytest.mark.parametrize(
    ("precision", "says"), [("float32", "HIGHEST"), ("tf32", "HIGH")]
)
def test_programs_for_cuda_say_it(precision, says):
    task = build("twocnn", precision)
    params = jax.eval_shape(task.init, KEY)
    step = jax.jit(jax.grad(task.loss))
    exported = export.export(step, platforms=["cuda"])
    text = exported(params, examples("twocnn"), KEY).mlir_module()
    lines = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    lines += [line for line in text.splitlines() if "stablehlo.convolution" in line]
    assert len(lines) >= 8
    for line in lines:
        assert f"[{says}, {says}]" in line or line.count(f"precision {says}>") == 2


@pytest.mark.parametrize(
    "name", ["gn_cnn", pytest.param("char_lstm", marks=pytest.mark.slow)]
)
def test_float32_is_jax_as_it_is_on_a_cpu(name, monkeypatch):
    """Bit for bit: as if nothing were said of precision."""
    ours = step_of(name, "float32")
    monkeypatch.setitem(mixed_precision.PRODUCTS, "float32", None)
    theirs = step_of.__wrapped__(name, "float32")
    chex.assert_trees_all_equal(ours, theirs)


@functools.cache
def step_of(name, precision):
    """(loss, gradient) of a small model at its first parameters."""
    task = build(name, precision, **SMALL[name])
    params = jax.jit(task.init)(KEY)
    return jax.jit(jax.value_and_grad(task.loss))(params, examples(name), KEY)


@pytest.mark.parametrize(
    "name", ["gn_cnn", pytest.param("char_lstm", marks=pytest.mark.slow)]
)
def test_gradients_in_bfloat16_are_near_those_in_float32(name):
    loss, slope = step_of(name, "float32")
    rough_loss, rough = step_of(name, "bfloat16")
    assert rough_loss != loss  # something was rounded
    np.testing.assert_allclose(rough_loss, loss, rtol=0.02)
    assert float(tree.square_norm(tree.sub(rough, slope))) < 0.02 * float(
        tree.square_norm(slope)
    )


SHAPES = {"ours": (1, 1, 3)}  # images; others take vectors


class Nnx(nnx.Module):
    def __init__(self, rngs):
        norm = nnx.BatchNorm(4, rngs=rngs)
        self.body = nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), norm, nnx.relu)
        self.head = nnx.Linear(4, 5, rngs=rngs)


def normalised(library, precision):
    """A task with batch normalisation, ours without running statistics."""
    if library == "nnx":
        return models.task_from_nnx(Nnx, (3,), precision=precision)
    body = [nn.Dense(4), nn.BatchNorm(), nn.relu]
    if library == "ours":
        body = [nn.Dense(4), layers.BatchNorm(), nn.relu, layers.flatten]
    module = models.Network(nn.Sequential(body), nn.Dense(5))
    return models.task(module, SHAPES.get(library, (3,)), precision=precision)


@pytest.mark.parametrize("library", ["linen", "nnx"])
def test_statistics_stay_float32(library):
    """Inputs of zero move them by a hundredth: bfloat16 rounds 100.3 to 100.5."""
    batch = Batch.full(np.zeros((6, 3), np.float32), jnp.arange(6) % 5)
    task = normalised(library, "bfloat16")
    params = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf + 100.3 * statistics.is_statistic(path),
        jax.jit(task.init)(KEY),
    )
    slope = jax.jit(jax.grad(task.loss))(params, batch, KEY)
    (mean, var), _ = map(jax.tree.leaves, tree.split(slope, statistics.mask(slope)))
    assert mean.dtype == var.dtype == jnp.float32
    np.testing.assert_allclose(mean, 0.01 * 100.3, rtol=1e-4)
    np.testing.assert_allclose(var, 0.01 * 101.3, rtol=1e-4)


@pytest.mark.parametrize("library", ["linen", "nnx", "ours"])
def test_products_behind_a_normalisation_are_of_bfloat16(library):
    task = normalised(library, "bfloat16")
    batch = Batch.full(np.zeros((6, *SHAPES.get(library, (3,))), np.float32))
    params = jax.eval_shape(task.init, KEY)
    traced = jax.make_jaxpr(jax.grad(task.loss))(params, batch, KEY)
    found = [e for e in equations(traced.jaxpr) if e.primitive.name in PRODUCTS]
    assert len(found) == 5  # the examples have no gradient
    for product in found:
        kinds = {variable.aval.dtype for variable in product.invars}
        assert kinds == {jnp.dtype("bfloat16")}


@pytest.mark.slow
@pytest.mark.parametrize("library", ["linen", "nnx"])
def test_the_head_takes_the_features_that_a_task_gives(library):
    task = normalised(library, "bfloat16")
    params = task.init(KEY)
    batch = Batch.full(np.ones((2, 3), np.float32))
    features = task.features(params, batch, None)
    logits = task.predict(params, batch)
    assert features.dtype == logits.dtype == jnp.float32
    np.testing.assert_array_equal(task.head(params, features), logits)


@pytest.mark.parametrize(
    "dtype", [np.int32, pytest.param(np.float32, marks=pytest.mark.slow)]
)
def test_tokens_are_distinguished_in_bfloat16(dtype):
    module = models.model("char_lstm", 5, vocab=TOKENS, hidden=4, layers=1)
    task = models.task(module, (1,), precision="bfloat16")
    params = task.init(KEY)
    tokens = Batch.full(np.arange(500, 600, dtype=dtype)[:, None])
    features = task.features(params, tokens, None)
    assert len(np.unique(features, axis=0)) == 100


@pytest.mark.parametrize("library", ["linen", "nnx"])
def test_other_precisions_are_refused(library):
    with pytest.raises(ValueError, match="precision is 'float16'; known: float32, tf3"):
        normalised(library, "float16")


def test_a_task_tells_its_precision():
    for precision in PRECISIONS:
        assert normalised("linen", precision).precision == precision
