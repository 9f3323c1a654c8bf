"""The LSTM against a plain scan with autodiff, and the character model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pfljax import models
from pfljax.core.types import Batch
from pfljax.models.recurrent import LSTM, Embedding

KEY = jax.random.key(3)
T, B, D, H = 7, 4, 3, 5


def plain(params, x):
    """An LSTM layer by its definition, [T, B, d] -> [T, B, H]."""

    def step(state, inputs):
        h, c = state
        gates = inputs @ params["kernel_i"].T + params["bias_i"]
        gates += h @ params["kernel_h"].T + params["bias_h"]
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((x.shape[1], params["kernel_h"].shape[1]))
    return jax.lax.scan(step, (zero, zero), x)[1]


def layer(params, x):
    return LSTM(params["kernel_h"].shape[1]).apply({"params": params}, x)


def draw(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(0, 0.7, shape), jnp.float32)


def layer_params(*lead, width=D, seed=0):
    shapes = {
        "kernel_i": (4 * H, width),
        "kernel_h": (4 * H, H),
        "bias_i": (4 * H,),
        "bias_h": (4 * H,),
    }
    return {
        n: draw(*lead, *s, seed=seed + i) for i, (n, s) in enumerate(shapes.items())
    }


def both(function):
    """Value and gradients by parameters and inputs of a sum over all outputs."""

    def total(params, x, weight):
        return jnp.sum(weight * function(params, x)), function(params, x)

    return jax.value_and_grad(total, (0, 1), has_aux=True)


def check_same(ours, theirs):
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "steps", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2)), T]
)
def test_a_layer_is_the_plain_scan_in_value_and_gradient(steps):
    args = layer_params(), draw(steps, B, D, seed=8), draw(steps, B, H, seed=9)
    check_same(jax.jit(both(layer))(*args), jax.jit(both(plain))(*args))


@pytest.mark.slow
def test_layers_of_clients_under_vmap():
    args = layer_params(3), draw(3, T, B, D, seed=8), draw(3, T, B, H, seed=9)
    ours = jax.jit(jax.vmap(both(layer)))(*args)
    check_same(ours, jax.jit(jax.vmap(both(plain)))(*args))


@pytest.mark.slow
def test_the_model_is_two_plain_layers_in_value_and_gradient():
    sizes = {"vocab": 11, "embedding": D, "hidden": H}
    task = models.task(models.model("char_lstm", 6, **sizes), (T,))
    params = jax.jit(task.init)(KEY)
    rng = np.random.default_rng(0)
    tokens = jnp.asarray(rng.integers(0, 11, (B, T)), jnp.int32)
    batch = Batch(tokens, jnp.arange(B), jnp.ones(B))

    def loss(params):
        body, head = params["body"], params["head"]
        h = body["layers_0"]["embedding"][tokens.T]
        h = plain(body["layers_2"], plain(body["layers_1"], h))[-1]
        log_p = jax.nn.log_softmax(h @ head["kernel"] + head["bias"])
        return -log_p[jnp.arange(B), batch.y].mean()

    ours = jax.jit(jax.value_and_grad(lambda p: task.loss(p, batch, KEY)))(params)
    check_same(ours, jax.jit(jax.value_and_grad(loss))(params))
    assert max(float(abs(g).max()) for g in jax.tree.leaves(ours[1])) > 1e-3


def test_parameters_are_those_of_leaf():
    task = models.task(models.model("char_lstm", 80), (80,))
    shapes = jax.eval_shape(task.init, KEY)
    count = {
        part: sum(a.size for a in jax.tree.leaves(shapes[part])) for part in shapes
    }
    assert count == {"body": 819_920 - 257 * 80, "head": 257 * 80}
    assert sum(count.values()) == 819_920
    assert task.num_modules == 4


def test_layers_of_one_module_are_layers_one_after_another():
    first, second = layer_params(seed=1), layer_params(width=H, seed=2)
    module = LSTM(H, layers=2)
    params = first | {f"{name}_1": leaf for name, leaf in second.items()}
    x = draw(T, B, D)
    found = module.apply({"params": params}, x)
    np.testing.assert_allclose(found, plain(second, plain(first, x)), atol=1e-5)
    made = jax.eval_shape(module.init, KEY, x)["params"]
    assert jax.tree.map(jnp.shape, made) == jax.tree.map(jnp.shape, params)


def test_parameters_start_as_torch_has_them():
    shapes = {"kernel_i": (1024, 8), "kernel_h": (1024, 256)}
    shapes |= {"bias_i": (1024,), "bias_h": (1024,)}
    params = jax.jit(LSTM(256).init)(KEY, jnp.zeros((1, 1, 8)))["params"]
    assert {name: leaf.shape for name, leaf in params.items()} == shapes
    for leaf in params.values():
        assert 0.98 / 16 < abs(leaf).max() <= 1 / 16
        np.testing.assert_allclose(leaf.std(), 1 / 16 / np.sqrt(3), rtol=0.06)


def test_tokens_are_whole_numbers_whatever_their_type():
    module = Embedding(300, 2)
    params = module.init(KEY, np.zeros((1, 1)))
    tokens = np.array([[0, 7, 299], [1, 255, 300]])
    vectors = module.apply(params, tokens)
    assert vectors.shape == (3, 2, 2)
    table = params["params"]["embedding"]
    np.testing.assert_array_equal(vectors[2], [table[299], [0, 0]])
    np.testing.assert_array_equal(vectors, module.apply(params, tokens.astype(float)))
