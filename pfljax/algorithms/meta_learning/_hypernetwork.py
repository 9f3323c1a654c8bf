"""A hypernetwork: a network that generates the parameters of another network.

    z = perceptron(v)        params = bias + z kernel

Its input v is an embedding. `kernel` and `bias` have a leaf for each leaf of the
parameters. Running statistics are not generated: they are the bias alone, the same for
every v.

Ha, Dai, Le, ICLR 2017, https://arxiv.org/abs/1609.09106.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import perceptron, tree
from pfljax.core.perceptron import Layer
from pfljax.core.types import Array, Key, Params

LAYERS = 4  # from v to z, with relu between them; those of Shamsian et al.


class Hypernetwork(NamedTuple):
    """The layers from v to z, and those from z to the parameters."""

    layers: tuple[Layer, ...]
    kernel: Params  # leaves [hidden, ...]; None at running statistics
    bias: Params


def init(
    key: Key,
    embedding: int,
    hidden: int,
    params: Params,
) -> Hypernetwork:
    """A hypernetwork of embeddings f32[embedding] that generates models near `params`.

    A kernel is drawn at the root mean square of its leaf, so that parameters keep the
    scale of their layer's fan-in.
    """
    layers_key, kernel_key = jax.random.split(key)
    leaves, structure = jax.tree.flatten(tree.parameters(params))
    keys = jax.random.split(kernel_key, len(leaves))
    kernels = []
    for leaf_key, leaf in zip(keys, leaves, strict=True):
        scale = jnp.sqrt(jnp.mean(jnp.square(leaf)) / hidden)
        kernels.append(scale * jax.random.normal(leaf_key, (hidden, *leaf.shape)))
    return Hypernetwork(
        layers=perceptron.init(layers_key, (embedding, *[hidden] * LAYERS)),
        kernel=jax.tree.unflatten(structure, kernels),
        bias=params,
    )


def apply(net: Hypernetwork, v: Array) -> Params:
    """The parameters for one embedding."""
    z = perceptron.apply(net.layers, v[None])[0]

    def on_leaf(kernel: Array) -> Array:
        # An accelerator's default would round both to a few bits.
        return jnp.tensordot(z, kernel, 1, precision="highest")

    away = jax.tree.map(on_leaf, net.kernel)
    make = tree.add(tree.parameters(net.bias), away)
    return tree.merge(make, net.bias)


def slopes(
    net: Hypernetwork,
    v: Array,
    changes: Params,
) -> tuple[Hypernetwork, Any]:
    """Gradients of sum_m <parameters of v_m, changes_m> in the network and in v.

    Args:
      net: the network.
      v: embeddings f32[M, e].
      changes: the gradients in the parameters, stacked over M.
    """

    def make(net: Hypernetwork, v: Array) -> Params:
        return jax.vmap(apply, (None, 0))(net, v)

    _, pull = jax.vjp(make, net, v)
    return pull(changes)
