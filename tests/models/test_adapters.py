"""LoRA and FedPara: their kernels against NumPy, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pfljax import models
from pfljax.core import tree
from pfljax.core.types import Batch
from pfljax.models.layers import flatten

SHAPE = (4, 4, 2)
X = np.random.default_rng(1).normal(size=(5, *SHAPE))
BATCH = Batch.full(X.astype(np.float32), np.arange(5) % 3)
KERNELS = {"body/layers_0/kernel", "body/layers_2/kernel", "head/kernel"}


def network():
    """A convolution, a layer whose outputs come first, and a dense layer."""
    body = [nn.Conv(5, (3, 3)), flatten, models.Linear(6), jnp.tanh]
    return models.Network(nn.Sequential(body), nn.Dense(3))


def draw(task):
    """All parameters at random, so that no factor is zero."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(task.init, jax.random.key(0))
    return jax.tree.map(lambda s: np.float32(rng.normal(0, 0.5, s.shape)), shapes)


def matrix(path, kernel):
    """The kernel of `network` as a matrix [inputs, outputs]."""
    kernel = np.reshape(kernel, (-1, kernel.shape[-1]))
    return kernel.T if path == "body/layers_2/kernel" else kernel


def test_a_wrapped_model_begins_as_the_model():
    adapted = models.task(models.LoRA(network(), rank=2), SHAPE)
    plain = models.task(network(), SHAPE)
    logits = [
        jax.jit(lambda task=task: task.predict(task.init(jax.random.key(3)), BATCH))()
        for task in (adapted, plain)
    ]
    np.testing.assert_array_equal(*logits)
    # As PEFT draws A: uniform in +-1/sqrt(inputs).
    a = adapted.init(jax.random.key(3))["lora_a"]["body"]["layers_2"]["kernel"]
    assert a.shape == (80, 2)
    assert 0.9 * 80**-0.5 < np.abs(a).max() <= 80**-0.5


def test_products_are_added_to_the_kernels():
    task = models.task(models.LoRA(network(), rank=2, scale=3.0), SHAPE)
    params = draw(task)
    given, made = map(tree.paths, (params, task.complete(params)))
    assert made.keys() == {name for name in given if not name.startswith("lora")}
    for path in made:
        kernel, wanted = matrix(path, made[path]), matrix(path, given[path])
        if path in KERNELS:
            a, b = given[f"lora_a/{path}"], given[f"lora_b/{path}"]
            wanted = np.float64(wanted) + 3 * np.float64(a) @ b
        np.testing.assert_allclose(kernel, wanted, rtol=1e-5, atol=1e-6)
    logits = task.predict(params, BATCH), task.wrapped.predict(made_of(made), BATCH)
    np.testing.assert_allclose(*logits, rtol=1e-5)


def made_of(named):
    shapes = jax.eval_shape(models.task(network(), SHAPE).init, jax.random.key(0))
    return jax.tree.unflatten(jax.tree.structure(shapes), named.values())


def test_one_step_moves_b_by_the_gradient_of_the_kernel():
    """From B = 0 a step of SGD changes W by -rate scale^2 A A' grad W."""
    task = models.task(models.LoRA(network(), rank=2, scale=3.0), SHAPE)
    params = draw(task)
    params["lora_b"] = tree.zeros(params["lora_b"])
    base = {part: params[part] for part in ("body", "head")}
    slope = tree.paths(jax.grad(task.wrapped.loss)(base, BATCH, None))
    stepped = tree.axpy(-0.1, jax.grad(task.loss)(params, BATCH, None), params)
    stepped = {**base, "lora_a": stepped["lora_a"], "lora_b": stepped["lora_b"]}
    before, after = tree.paths(base), tree.paths(task.complete(stepped))
    given, moved = tree.paths(params), tree.paths(stepped)
    for path in KERNELS:
        a = np.float64(given[f"lora_a/{path}"])
        np.testing.assert_array_equal(moved[f"lora_a/{path}"], given[f"lora_a/{path}"])
        change = matrix(path, after[path] - before[path])
        wanted = -0.1 * 9 * a @ a.T @ matrix(path, slope[path])
        np.testing.assert_allclose(change, wanted, rtol=1e-4, atol=1e-6)


def test_kernels_and_further_leaves_are_chosen_by_name():
    module = models.LoRA(models.transformer(5, features=8, heads=2), "query */out/*")
    task = models.task(module, (6,))
    names = tree.paths(task.frozen)
    adapted = {name.split("/", 1)[1] for name in names if name.startswith("lora_b")}
    layers = [f"body/layers_{i}/attention" for i in (3, 4)]
    assert adapted == {f"{a}/{b}/kernel" for a in layers for b in ("query", "out")}
    shapes = tree.paths(jax.eval_shape(task.init, jax.random.key(0)))
    # Matrices of 8 rows and 8 columns, whatever axes the heads are.
    assert {shapes[name].shape for name in shapes if "lora_a" in name} == {(8, 4)}
    assert all(frozen != name.startswith("lora") for name, frozen in names.items())
    task = models.task(models.LoRA(models.mlp(5), train="head */bias"), (4,))
    trained = {name for name, frozen in tree.paths(task.frozen).items() if not frozen}
    base = {name for name in trained if not name.startswith("lora")}
    assert base == {"body/layers_1/bias", "head/bias", "head/kernel"}


@pytest.mark.parametrize("personal", [False, True])
def test_fedpara_multiplies_two_products(personal):
    module = models.FedPara(models.Network(flatten, nn.Dense(6)), personal=personal)
    task = models.task(module, (6,))
    params = draw(task)
    x1, y1, x2, y2 = (
        np.float64(params[name]["head"]["kernel"]) for name in ("x1", "y1", "x2", "y2")
    )
    # Between ceil(sqrt(6)) = 3 and floor(36 / 24) = 1.
    assert x1.shape == x2.shape == (6, 2)
    kernel = task.complete(params)["head"]["kernel"]
    np.testing.assert_allclose(kernel, (x1 @ y1) * (x2 @ y2 + personal), rtol=1e-5)
    assert np.linalg.matrix_rank(kernel, tol=1e-4) == (4 if not personal else 6)
    drawn = models.task(models.FedPara(models.mlp(10, hidden=(900,))), (400,))
    factors = drawn.init(jax.random.key(0))
    for name, side in (("x1", 400), ("y2", 900)):
        deviation = factors[name]["body"]["layers_1"]["kernel"].std()
        np.testing.assert_allclose(deviation, (2 / side) ** 0.5, rtol=0.02)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"where": "*/bias"},
            r"LoRA: where has '\*/bias', which matches no kernel, but",
        ),
        ({"where": "dense"}, "LoRA: where has 'dense', which matches no leaf .*kernel"),
        ({"train": "tail"}, "LoRA: train has 'tail', which matches no leaf"),
        (
            {"rank": 4},
            "rank is 4, but head/kernel has the sides 6 and 3; .* 3",
        ),
    ],
)
def test_what_does_not_fit_is_named(options, message):
    with pytest.raises(ValueError, match=message) as error:
        models.task(models.LoRA(network(), **{"rank": 2, **options}), SHAPE)
    assert "\n" not in str(error.value)
