"""A generator of features for given labels.

    noise ~ N(0, 1)     z = relu(normalised([noise, one-hot label] A)) B + b

It is trained with the heads of the clients, weighted for each label by their numbers of
examples of it, and with a term that keeps its features apart.

Zhu, Hong, Zhou, ICML 2021, https://arxiv.org/abs/2105.10056 (FedGen).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax.core import tree
from pfljax.core.types import Array, Key

NOISE = 32  # dimension of the noise
ROWS = 32  # generated examples in a step
# torch's Adam with a weight decay of 0.01; the rate changes from round to round.
ADAM = optax.flatten(
    optax.chain(optax.add_decayed_weights(1e-2), optax.scale_by_adam())
)


class Generator(NamedTuple):
    """A perceptron whose hidden layer is normalised by each batch, then scaled."""

    # f32[NOISE + K, hidden], labels one-hot; no bias: the batch mean is subtracted.
    first: Array
    scale: Array  # f32[hidden]
    shift: Array  # f32[hidden]
    kernel: Array  # f32[hidden, e]
    bias: Array  # f32[e]


class Trained(NamedTuple):
    """A generator, the labels that it knows, and the state of its optimizer."""

    g: Generator
    labels: Array  # f32[K], 1 for a label that it was trained for
    moments: Any  # of Adam


class Drawn(NamedTuple):
    """Generated features, and their noise."""

    z: Array  # f32[B, e]
    noise: Array  # f32[B, NOISE]


def init(key: Key, classes: int, hidden: int, outputs: int) -> Trained:
    """The first generator, with the first state of Adam."""
    keys = jax.random.split(key)
    kernel = jax.nn.initializers.lecun_normal()
    g = Generator(
        first=kernel(keys[0], (NOISE + classes, hidden)),
        scale=jnp.ones(hidden),
        shift=jnp.zeros(hidden),
        kernel=kernel(keys[1], (hidden, outputs)),
        bias=jnp.zeros(outputs),
    )
    return Trained(g=g, labels=jnp.zeros(classes), moments=ADAM.init(g))


def train(
    start: Trained,
    heads: Callable[[Array], Array],
    counts: Array,
    key: Key,
    rate: Any,
    steps: int,
) -> Trained:
    """The generator after `steps` of Adam, each on features of newly drawn labels.

    Labels are drawn from those of which some client has at least two examples.

    Args:
      start: the generator before.
      heads: features z [B, e] -> logits [M, B, K] of the heads of M clients.
      counts: examples of each label of each client, f32[M, K]; 0 for absent clients.
      key: the key of these steps.
      rate: the learning rate.
      steps: the number of steps.
    """
    share = counts / jnp.maximum(jnp.sum(counts, 0), 1)
    known = (jnp.max(counts, 0) > 1).astype(jnp.float32)

    def objective(g: Generator, key: Key) -> Array:
        label_key, noise_key = jax.random.split(key)
        labels = draw_labels(known, label_key, ROWS)
        drawn = draw(g, labels, noise_key)
        log = jax.nn.log_softmax(heads(drawn.z))
        # Only at the example's label. By products: indexing would compile longer.
        weight = share[:, None] * jax.nn.one_hot(labels, len(known))
        return -jnp.sum(weight * log) / ROWS + likeness(drawn)

    def step(index: Array, carry: tuple[Generator, Any]) -> tuple[Generator, Any]:
        g, moments = carry
        grads = jax.grad(objective)(g, jax.random.fold_in(key, index))
        updates, moments = ADAM.update(grads, moments, g)
        return tree.axpy(-rate, updates, g), moments

    carry = (start.g, start.moments)
    g, moments = jax.lax.fori_loop(0, steps, step, carry)
    labels = jnp.maximum(start.labels, known)
    return Trained(g=g, labels=labels, moments=moments)


def draw(generator: Generator, labels: Array, key: Key, mask: Any = None) -> Drawn:
    """Features for these labels i32[B], normalised over those where `mask` f32[B] > 0.

    None is over all.
    """
    noise = jax.random.normal(key, (len(labels), NOISE))
    one_hot = jax.nn.one_hot(labels, len(generator.first) - NOISE)
    inputs = jnp.concatenate([noise, one_hot], 1) @ generator.first
    where = None if mask is None else mask[:, None] > 0
    normalised = jax.nn.standardize(inputs, axis=0, where=where)
    hidden = jax.nn.relu(generator.scale * normalised + generator.shift)
    z = hidden @ generator.kernel + generator.bias
    return Drawn(z=z, noise=noise)


def draw_labels(known: Array, key: Key, count: int) -> Array:
    """Labels i32[count], uniform over those where `known` f32[K] is 1; else 0."""
    # From one uniform number each: a categorical draw would compile twice as long.
    upto = jnp.cumsum(known)
    point = upto[-1] * jax.random.uniform(key, (count, 1))
    # Without a known label the sum is K, and the label 0.
    return jnp.sum(point >= upto, 1) % len(known)


def likeness(drawn: Drawn) -> Array:
    """How alike the drawn features are: higher means more alike, and 1 that all agree.

    It is exp(-mean_ab of distances in noise times those in features).
    """

    def differences(vectors: Array) -> Array:
        return vectors[:, None] - vectors[None]

    in_noise = jnp.mean(jnp.square(differences(drawn.noise)), -1)
    in_features = jnp.mean(jnp.abs(differences(drawn.z)), -1)
    return jnp.exp(-jnp.mean(in_noise * in_features))
