"""REPAIR: hidden units between models, brought to the statistics between theirs.

The preactivations of a mixture of networks vary less than those of the networks, layer
by layer, and so its loss rises. In each dense layer and convolution but the last, each
unit's or channel's output is scaled and shifted so that its mean and deviation over
training examples are the mixtures of those of the models. Jordan et al., ICLR 2023,
https://arxiv.org/abs/2211.08403.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from pfljax.core.types import Array, Batch, Params
from pfljax.landscape.activations import change_outputs
from pfljax.landscape.stacked import mix_models

Predict = Callable[[Params, Batch], Array]
Moments = tuple[Array, Array]  # mean and deviation of units, f32[d]


def make_repair(
    predict: Predict, models: tuple[Params, ...], batch: Batch
) -> Callable[[Any, Array, Params], Predict]:
    """A function of (weights, keep, the sum of models by weights) -> its `predict`.

    All layers have their statistics on one batch. Where `keep` bool[] holds, units stay
    as they are.

    Raises:
      ValueError: there is no hidden layer to repair, or one is called twice.
    """
    ends = tuple(_find_moments(predict, model, batch) for model in models)

    def make(weights: Any, keep: Array, params: Params) -> Predict:
        targets = mix_models(weights, ends)
        affine = {}

        def correct(module: nn.Module, output: Array) -> Array:
            name = "/".join(module.path)
            if name not in targets:
                return output
            if name not in affine:
                mean, deviation = _measure(output, batch.mask)
                scale = targets[name][1] / jnp.where(deviation > 0, deviation, 1)
                shift = targets[name][0] - scale * mean
                affine[name] = jnp.where(keep, 1, scale), jnp.where(keep, 0, shift)
            scale, shift = affine[name]
            return scale * output + shift

        # In one pass: a layer is measured behind those that are repaired already.
        change_outputs(predict, params, batch, correct)
        return lambda params, batch: change_outputs(predict, params, batch, correct)

    return make


def _find_moments(predict: Predict, params: Params, batch: Batch) -> dict[str, Moments]:
    """The moments of the units of each layer but the last, by its name."""
    found = {}

    def note(module: nn.Module, output: Array) -> Array:
        if module.has_variable("params", "kernel"):
            name = "/".join(module.path)
            found[name, name in found] = _measure(output, batch.mask)
        return output

    change_outputs(predict, params, batch, note)
    *hidden, _ = found or [("", True)]
    if not hidden or any(twice for _, twice in found):
        raise ValueError(
            "statistics is 'repair', which needs a Linen module with hidden dense "
            "layers or convolutions, each called once; leave it out"
        )
    return {name: found[name, twice] for name, twice in hidden}


def _measure(output: Array, mask: Array) -> Moments:
    """The moments of units [B, ..., d] over examples, pixels and steps."""
    units = output.reshape(len(mask), -1, output.shape[-1]).astype(jnp.float32)
    weight = mask[:, None, None] / (mask.sum() * units.shape[1])
    mean = (weight * units).sum((0, 1))
    return mean, jnp.sqrt((weight * (units - mean) ** 2).sum((0, 1)))
