"""A character LSTM, and an LSTM layer whose products are as large as they can be.

Caldas et al., LEAF, 2018, https://arxiv.org/abs/1812.01097 (Shakespeare); Li et al.,
FedProx, MLSys 2020, https://arxiv.org/abs/1812.06127, use the same model.

Products that do not depend on the state are taken out of the loop over time: one
product projects the inputs of all steps, and one product for each kernel makes its
gradient from the gate gradients of all steps. Within this file time T is the first
axis, and H counts hidden units. `flax.linen.RNN` has one bias instead of two, and
takes 365 ms where this takes 345 ms.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne
from pfljax.core.types import Array
from pfljax.models import mixed_precision
from pfljax.models.network import Classes, Layer, network

# JAX declares no types for it: of two operands and a precision.
_with_gradients: Any = partial(jax.custom_vjp, nondiff_argnums=(2,))


@component
def char_lstm(
    num_classes: Classes,
    *,
    vocab: AtLeastOne = 80,
    embedding: AtLeastOne = 8,
    hidden: AtLeastOne = 256,
    layers: AtLeastOne = 2,
    each: bool = False,
) -> nn.Module:
    """LEAF's next-character LSTM of tokens i32[T]; 819,920 with 80 characters.

    It predicts what follows the last token, or with `each` what follows each of them.
    """
    body: list[Layer] = [Embedding(vocab, embedding)]
    # Each layer is a module: methods that mix by module (`Task.modules`) see each.
    for _ in range(layers):
        body.append(LSTM(hidden))
    body.append(all_states if each else last_state)
    return network(body, num_classes, vocab=vocab)


class Embedding(nn.Module):
    """A vector for each token, drawn from N(0, 1) as torch does."""

    vocab: int
    features: int

    @nn.compact
    def __call__(self, tokens: Array) -> Array:
        """Looks up vectors f32[T, B, features] of tokens [B, T].

        Tokens outside of the vocabulary have zeros; a run refuses them.

        Raises:
          ValueError: examples are not sequences.
        """
        if tokens.ndim != 2:
            raise ValueError(
                f"x has shape {tokens.shape}, expected tokens [B, T]; choose another "
                "model than an LSTM for images"
            )
        init = nn.initializers.normal(1.0)
        shape = (self.vocab, self.features)
        table = self.param("embedding", init, shape)
        steps_first = tokens.T.astype(jnp.int32)
        # It is a product, because the gradient of a gather is a slow scatter on CPUs.
        return jax.nn.one_hot(steps_first, self.vocab, dtype=table.dtype) @ table


class LSTM(nn.Module):
    """Torch's `nn.LSTM`: each layer has two biases, gates in the order i, f, g, o.

    Kernels are stored [4H, in] and, like the biases, start uniform in +-1/sqrt(H). The
    names of a later layer's parameters end in its number, counted from 0: "kernel_i_1".
    """

    hidden: int
    layers: int = 1
    bias: bool = True

    @property
    def OUTPUTS_FIRST(self) -> list[str]:  # noqa: N802, as the constant of other layers
        """Names the kernels of all layers."""
        inputs = [f"kernel_i{end}" for end in self._ends()]
        recurrent = [f"kernel_h{end}" for end in self._ends()]
        return inputs + recurrent

    def _ends(self) -> list[str]:
        """Returns the ends of the parameters' names, layer by layer."""
        later = [f"_{layer}" for layer in range(1, self.layers)]
        return ["", *later]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Computes hidden states [T, B, H] of the last layer from inputs [T, B, d]."""
        for end in self._ends():
            x = self._layer(x, end)
        return x

    def _layer(self, x: Array, end: str) -> Array:
        """Computes the layer whose parameters' names have this end."""
        initial = _uniform(self.hidden**-0.5)
        gates = 4 * self.hidden

        def draw(name: str, *shape: int) -> Any:
            return self.param(name + end, initial, (gates, *shape))

        inputs = draw("kernel_i", x.shape[-1])
        recurrent = draw("kernel_h", self.hidden)
        bias = None
        if self.bias:
            # As in torch both have the whole gradient, so their sum moves twice.
            bias = draw("bias_i") + draw("bias_h")
        weights = Weights(inputs, recurrent, bias)
        return unroll(x, weights, mixed_precision.product_precision())


def last_state(h: Array) -> Array:
    """Returns the state [B, H] after the last step of [T, B, H]."""
    return h[-1]


def all_states(h: Array) -> Array:
    """Returns the states [B, T, H] after each step of [T, B, H]."""
    return h.swapaxes(0, 1)


class Weights(NamedTuple):
    """The weights of a layer."""

    inputs: Array  # [4H, d]
    recurrent: Array  # [4H, H]
    bias: Array | None  # [4H]


class States(NamedTuple):
    """The numbers of each step that the backward pass needs."""

    hidden: Array  # [T, B, H]
    cell: Array  # [T, B, H]
    gates: Array  # [T, B, 4H], in the order i, f, g, o


@_with_gradients
def unroll(x: Array, weights: Weights, precision: str | None = None) -> Array:
    """Computes hidden states [T, B, H] of inputs [T, B, d] from a zero state.

    `precision` is JAX's name for that of products, in both passes.
    """
    hidden, _ = _forward(x, weights, precision)
    return hidden


def _forward(x: Array, weights: Weights, precision: Any) -> tuple[Array, Any]:
    """Returns hidden states, and the numbers that the backward pass needs."""
    hidden_units = weights.recurrent.shape[1]
    zero = jnp.zeros((x.shape[1], hidden_units), x.dtype)
    # It is added within the loop; outside it would be one pass more over all gates.
    bias = 0.0 if weights.bias is None else weights.bias

    # It is transposed once, and not by the product of every step.
    recurrent = jax.lax.optimization_barrier(weights.recurrent.T)

    def step(state: tuple[Array, Array], inputs: Array) -> Any:
        h, c = state
        gates = inputs + jnp.matmul(h, recurrent, precision=precision) + bias
        gates = _activate(gates)
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        c = f * c + i * g
        h = o * jnp.tanh(c)
        return (h, c), States(hidden=h, cell=c, gates=gates)

    projected = jnp.matmul(x, weights.inputs.T, precision=precision)
    _, states = jax.lax.scan(step, (zero, zero), projected)
    # Gates are kept, 4 H numbers a step, because computing them again costs a product.
    residuals = (x, states, weights)
    return states.hidden, residuals


def _activate(gates: Array) -> Array:
    """Computes sigmoids of i, f and o, and the tanh of g, [B, 4H].

    One tanh computes all, as sigmoid(x) = (tanh(x / 2) + 1) / 2, and they stay one
    array: a pass over a single gate takes longer than its sigmoid.
    """
    by_gate = np.repeat([0.5, 0.5, 1.0, 0.5], gates.shape[-1] // 4)
    scale = jnp.asarray(by_gate, gates.dtype)
    return scale * jnp.tanh(scale * gates) + (1 - scale)


def _backward(
    precision: Any, residuals: Any, cotangent: Array
) -> tuple[Array, Weights]:
    """Computes the gradients in the inputs and in the weights.

    The loop carries only (dh, dc) and writes the gate gradients [T, B, 4H].
    """
    x, states, weights = residuals
    zero = jnp.zeros_like(states.cell[0])

    def step(carry: tuple[Array, Array], inputs: Any) -> Any:
        dh, dc = carry
        slope, gates, c, c_before = inputs
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        tanh_c = jnp.tanh(c)
        dh = dh + slope
        dc = dc + dh * o * (1 - tanh_c**2)
        di = dc * g * i * (1 - i)
        df = dc * c_before * f * (1 - f)
        dg = dc * i * (1 - g**2)
        do = dh * tanh_c * o * (1 - o)
        # In the order of the kernel's rows.
        dgates = jnp.concatenate([di, df, dg, do], axis=-1)
        dh = jnp.matmul(dgates, weights.recurrent, precision=precision)
        return (dh, dc * f), dgates

    c_before = _one_step_before(states.cell)
    inputs = (cotangent, states.gates, states.cell, c_before)
    _, dgates = jax.lax.scan(step, (zero, zero), inputs, reverse=True)
    dx = jnp.matmul(dgates, weights.inputs, precision=precision)
    h_before = _one_step_before(states.hidden)
    slopes = Weights(
        inputs=_over_steps(dgates, x, precision),
        recurrent=_over_steps(dgates, h_before, precision),
        bias=None if weights.bias is None else dgates.sum((0, 1)),
    )
    return dx, slopes


def _over_steps(dgates: Array, states: Array, precision: Any) -> Array:
    """Computes the gradient [4H, n] of a kernel that is multiplied by [T, B, n].

    It is one product over all steps, in which the smaller factor is transposed. The
    barriers keep XLA from folding a transposition into the product, and from exchanging
    the first two axes of all gates before it.
    """
    columns = states.reshape(-1, states.shape[-1]).T
    flat = dgates.reshape(-1, dgates.shape[-1])
    columns = jax.lax.optimization_barrier(columns)
    product = jnp.matmul(columns, flat, precision=precision)
    return jax.lax.optimization_barrier(product).T


def _one_step_before(states: Array) -> Array:
    """Shifts states [T, ...] after each step to those before it."""
    zero = jnp.zeros_like(states[:1])
    return jnp.concatenate([zero, states[:-1]])


unroll.defvjp(_forward, _backward)


def _uniform(bound: float) -> Any:
    """Makes an initialiser that is uniform in +-bound."""

    def init(key: Any, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init
