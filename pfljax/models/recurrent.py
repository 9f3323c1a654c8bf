"""A character LSTM, and an LSTM layer whose products are as large as they can be.

Caldas et al., LEAF, 2018, https://arxiv.org/abs/1812.01097 (Shakespeare); Li et al.,
FedProx, MLSys 2020, https://arxiv.org/abs/1812.06127, use the same model.

What does not depend on the state is taken out of the loop over time: the inputs of all
steps are projected by one product, and the gradient of the recurrent kernel is one
product of all steps' gate gradients. Time T comes first inside; H hidden units.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from pfljax.core.types import Array
from pfljax.models import mixed_precision
from pfljax.models.layers import Layer
from pfljax.models.network import Classes, Network
from pfljax.registry import AtLeastOne, checked

# JAX declares no types for it: of two operands and a precision.
_with_gradients: Any = partial(jax.custom_vjp, nondiff_argnums=(2,))


@checked
def char_lstm(
    num_classes: Classes,
    *,
    vocab: AtLeastOne = 80,
    embedding: AtLeastOne = 8,
    hidden: AtLeastOne = 256,
    layers: AtLeastOne = 2,
) -> nn.Module:
    """LEAF's next-character LSTM of token rows i32[T]; 819,920 with 80 characters."""
    body: list[Layer] = [Embedding(vocab, embedding)]
    # A module a layer: methods that mix by module (`Task.modules`) see each.
    for _ in range(layers):
        body.append(LSTM(hidden))
    body.append(last_state)
    return Network(
        body=nn.Sequential(body),
        head=nn.Dense(num_classes),
    )


class Embedding(nn.Module):
    """A vector for each token, drawn from N(0, 1) as torch does."""

    vocab: int
    features: int

    @nn.compact
    def __call__(self, tokens: Array) -> Array:
        """Vectors f32[T, B, features] of tokens [B, T]; zero outside of the vocab.

        A task casts its rows to f32, which holds these tokens exactly.

        Raises:
          ValueError: for rows that are not sequences.
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
        # A product, because the gradient of a gather is a slow scatter on CPUs.
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
        """The kernels of all layers."""
        inputs = [f"kernel_i{end}" for end in self._ends()]
        recurrent = [f"kernel_h{end}" for end in self._ends()]
        return inputs + recurrent

    def _ends(self) -> list[str]:
        """Of the parameters' names, layer by layer."""
        later = [f"_{layer}" for layer in range(1, self.layers)]
        return ["", *later]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Hidden states [T, B, H] of the last layer, of inputs [T, B, d]."""
        for end in self._ends():
            x = self._layer(x, end)
        return x

    def _layer(self, x: Array, end: str) -> Array:
        """Hidden states of the layer whose parameters' names have this end."""
        initial = _uniform(self.hidden**-0.5)
        gates = 4 * self.hidden

        def draw(name: str, *shape: int) -> Any:
            return self.param(name + end, initial, (gates, *shape))

        kernel_i = draw("kernel_i", x.shape[-1])
        kernel_h = draw("kernel_h", self.hidden)
        projected = x @ kernel_i.T
        if self.bias:
            # Two, as torch: each has the whole gradient, so their sum moves twice.
            projected += draw("bias_i") + draw("bias_h")
        return unrolled(projected, kernel_h, mixed_precision.of_products())


def last_state(h: Array) -> Array:
    """The state [B, H] after the last step of [T, B, H]."""
    return h[-1]


class Gates(NamedTuple):
    """Gates and cell state after each step, [T, B, H]."""

    i: Array
    f: Array
    g: Array
    o: Array
    c: Array


@_with_gradients
def unrolled(projected: Array, kernel: Array, precision: str | None = None) -> Array:
    """Hidden states [T, B, H] of projected inputs [T, B, 4H] from a zero state.

    `kernel` [4H, H] is the recurrent one. The states before step 0 are zero.
    `precision` is JAX's name of that of products, forward and backward.
    """
    hidden, _ = _forward(projected, kernel, precision)
    return hidden


def _forward(projected: Array, kernel: Array, precision: Any) -> tuple[Array, Any]:
    """(hidden states, what the backward pass needs of every step)."""
    batch_size = projected.shape[1]
    hidden_units = kernel.shape[1]
    zero = jnp.zeros((batch_size, hidden_units), projected.dtype)

    def step(state: tuple[Array, Array], inputs: Array) -> Any:
        h, c = state
        gates = inputs + jnp.matmul(h, kernel.T, precision=precision)
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        i = nn.sigmoid(i)
        f = nn.sigmoid(f)
        g = jnp.tanh(g)
        o = nn.sigmoid(o)
        c = f * c + i * g
        h = o * jnp.tanh(c)
        after = Gates(i=i, f=f, g=g, o=o, c=c)
        return (h, c), (h, after)

    start = (zero, zero)
    _, (hidden, gates) = jax.lax.scan(step, start, projected)
    # Gates are kept, 5 H numbers a step: to compute them again costs a product a step.
    residuals = (hidden, gates, kernel)
    return hidden, residuals


def _backward(precision: Any, residuals: Any, cotangent: Array) -> tuple[Array, Array]:
    """Gradients by `projected` and by `kernel`.

    The loop carries (dh, dc) alone and writes the gate gradients [T, B, 4H].
    """
    hidden, gates, kernel = residuals
    zero = jnp.zeros_like(gates.c[0])

    def step(carry: tuple[Array, Array], inputs: Any) -> Any:
        dh, dc = carry
        slope, gates, c_before = inputs
        i, f, g, o, c = gates
        tanh_c = jnp.tanh(c)
        dh = dh + slope
        dc = dc + dh * o * (1 - tanh_c**2)
        di = dc * g * i * (1 - i)
        df = dc * c_before * f * (1 - f)
        dg = dc * i * (1 - g**2)
        do = dh * tanh_c * o * (1 - o)
        # In the order of the kernel's rows.
        dgates = jnp.concatenate([di, df, dg, do], axis=-1)
        dh = jnp.matmul(dgates, kernel, precision=precision)
        return (dh, dc * f), dgates

    start = (zero, zero)
    c_before = _one_step_before(gates.c)
    inputs = (cotangent, gates, c_before)
    _, dgates = jax.lax.scan(step, start, inputs, reverse=True)
    # Outside the loop: one product over all steps, not one a step and their sum.
    h_before = _one_step_before(hidden)
    dkernel = jnp.einsum("tbg,tbh->gh", dgates, h_before, precision=precision)
    return dgates, dkernel


def _one_step_before(states: Array) -> Array:
    """States [T, ...] before each step, of those after it."""
    zero = jnp.zeros_like(states[:1])
    return jnp.concatenate([zero, states[:-1]])


unrolled.defvjp(_forward, _backward)


def _uniform(bound: float) -> Any:
    """An initialiser, uniform in +-bound."""

    def init(key: Any, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init
