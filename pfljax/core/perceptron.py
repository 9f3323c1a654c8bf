"""A perceptron that a server trains on features: layers of (bias, kernel) with relu."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core.types import Array, Key


class Layer(NamedTuple):
    """An affine map."""

    bias: Array  # f32[outputs]
    kernel: Array  # f32[inputs, outputs]


def init(key: Key, widths: tuple[int, ...]) -> tuple[Layer, ...]:
    """Layers from widths[0] inputs through hidden units to widths[-1] outputs."""
    draw = jax.nn.initializers.lecun_normal()
    keys = jax.random.split(key, len(widths) - 1)
    layers = []
    for layer_key, inputs, outputs in zip(keys, widths, widths[1:], strict=False):
        kernel = draw(layer_key, (inputs, outputs))
        layers.append(Layer(bias=jnp.zeros(outputs), kernel=kernel))
    return tuple(layers)


def apply(layers: tuple[Layer, ...], x: Array) -> Array:
    """Outputs [B, widths[-1]] for inputs [B, ...], each flattened to a vector."""
    z = x.reshape(len(x), -1)
    *hidden, last = layers
    for layer in hidden:
        z = jax.nn.relu(z @ layer.kernel + layer.bias)
    return z @ last.kernel + last.bias
