"""The perceptron's dense layer gives what Flax's gives, and its derivatives."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from pfljax.models import mixed_precision
from pfljax.models.dense import Dense, product


def made(layer, x):
    """Outputs' function of (kernel, x), and a kernel."""
    params = layer.init(jax.random.key(0), x)["params"]

    def outputs(kernel, x):
        return layer.apply({"params": params | {"kernel": kernel}}, x)

    return outputs, params["kernel"]


def test_its_derivatives_are_as_exact_as_the_task_says():
    x, kernel = jnp.ones((5, 7)), jnp.ones((7, 4))
    layer = Dense(4, use_bias=False)

    @jax.jit
    def loss(kernel):
        # Out of this the derivative is traced without it.
        with mixed_precision.products("float32"):
            return jnp.sum(jnp.sin(layer.apply({"params": {"kernel": kernel}}, x)))

    text = str(jax.make_jaxpr(jax.grad(loss))(kernel))
    assert text.count("dot_general") == text.count("HIGHEST,") == 2


def test_no_examples_give_no_outputs():
    outputs, kernel = made(Dense(4), jnp.ones((5, 7)))
    assert outputs(kernel, jnp.ones((0, 7))).shape == (0, 4)


def test_outputs_and_derivatives_are_those_of_flax():
    x = jax.random.normal(jax.random.key(1), (2, 3, 7))
    ours, kernel = made(Dense(4), x)
    flaxs, same = made(nn.Dense(4), x)
    np.testing.assert_array_equal(kernel, same)

    @partial(jax.jit, static_argnums=0)
    def differentiate(outputs, kernel, x):
        def loss(kernel, x):
            return jnp.sum(jnp.sin(outputs(kernel, x)))

        both = jax.grad(loss, (0, 1))
        second = jax.grad(lambda kernel, x: jnp.sum(both(kernel, x)[0] ** 3), (0, 1))
        forward = jax.jvp(loss, (kernel, x), (2 * kernel, x))
        clients = jax.vmap(both)(jnp.stack([kernel, -kernel]), jnp.stack([x, 2 * x]))
        shared = jax.vmap(both, (None, 0))(kernel, jnp.stack([x, 2 * x]))
        values = outputs(kernel, x), both(kernel, x), second(kernel, x)
        return values, forward, clients, shared

    for a, b in zip(
        jax.tree.leaves(differentiate(ours, kernel, x)),
        jax.tree.leaves(differentiate(flaxs, kernel, x)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def test_the_gradient_of_the_kernel_transposes_the_rows():
    x, kernel = jnp.ones((5, 7)), jnp.ones((7, 4))
    slope = jax.jit(jax.grad(lambda kernel: jnp.sum(jnp.sin(product(x, kernel)))))
    text = slope.lower(kernel).as_text()
    # Over the first axis of both it would contract [0] with [0].
    assert "contracting_dims = [1] x [0]" in text
    assert "contracting_dims = [0] x [0]" not in text
