"""Forward passes in TF32 or bfloat16, of parameters that stay float32.

Micikevicius et al., Mixed Precision Training, ICLR 2018,
https://arxiv.org/abs/1710.03740. Whatever the precision, parameters, their gradients,
optimizer states, uploads, their means, running statistics and losses are float32.

    float32   products of float32 numbers, as exact as the platform has them
    tf32      the same numbers; a GPU may round factors to TF32, a fraction of 10 bits,
              a TPU takes three passes of bfloat16, a CPU knows float32 alone
    bfloat16  body and head on copies of parameters and inputs, a fraction of 7 bits;
              features and logits come back in float32

Without a precision JAX takes TF32 for float32 on a GPU that has it, and one pass of
bfloat16 on a TPU.
"""

from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core.types import Array

# JAX's names of how exact the product of float32 factors is.
PRODUCTS = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "bfloat16"}


def products(precision: str) -> AbstractContextManager[Any]:
    """Sets the precision of products that have none of their own.

    The gradients that JAX derives from them have it as well.
    """
    return jax.default_matmul_precision(PRODUCTS[precision])


def product_precision() -> str | None:
    """Returns the precision that `products` has set.

    Custom gradients take it as an argument, because they are traced after `products`
    has ended.
    """
    config: Any = jax.config  # JAX declares no types of its names
    return config.jax_default_matmul_precision


def lower(a: Any, precision: str) -> Any:
    """Converts the floats of a pytree to bfloat16, if that is the precision."""
    if precision != "bfloat16":
        return a

    def lower_leaf(leaf: Array) -> Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        return leaf.astype(jnp.bfloat16)

    return jax.tree.map(lower_leaf, a)


def to_float32(outputs: Array, precision: str) -> Array:
    """Converts the outputs of a forward pass to float32."""
    return outputs if precision != "bfloat16" else outputs.astype(jnp.float32)
