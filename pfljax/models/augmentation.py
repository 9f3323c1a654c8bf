"""Augmentation of images in local training.

Each one is a pure function (images [B, H, W, C], key) -> images [B, H, W, C] of raw
pixels, in the scale in which they are stored. A task augments its batches in training
mode alone (`augment`). One's own may take examples of any shape.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core import factories, tree
from pfljax.core.components import Component
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.ranges import AtLeastOne
from pfljax.core.types import Array, Batch, Key, Params, Task

Augment = Callable[[Array, Key], Array]


@component
def crop(x: Array, key: Key, *, pad: AtLeastOne = 4) -> Array:
    """Crops images at random after a border of zeros.

    Args:
      pad: the width of the border in pixels.
    """
    _require_images("crop", x)
    padded = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    corners = jax.random.randint(key, (len(x), 2), 0, 2 * pad + 1)

    def cut(image: Array, corner: Array) -> Array:
        return jax.lax.dynamic_slice(image, (*corner, 0), x.shape[1:])

    return jax.vmap(cut)(padded, corners)


@component
def flip(x: Array, key: Key) -> Array:
    """Mirrors images from left to right, each with the probability 0.5."""
    _require_images("flip", x)
    chosen = jax.random.bernoulli(key, 0.5, (len(x),))
    return tree.where_each(chosen, x[:, :, ::-1], x)


@component
def cutout(x: Array, key: Key, *, size: AtLeastOne = 8) -> Array:
    """Sets a square around a random pixel to zero: DeVries and Taylor, 2017.

    Source: https://arxiv.org/abs/1708.04552.

    Args:
      size: the side of the square in pixels; parts of it may lie outside of the image.
    """
    _require_images("cutout", x)
    count, height, width, _ = x.shape
    centres = jax.random.randint(key, (count, 2), 0, jnp.array([height, width]))

    def inside(axis: int, length: int) -> Array:
        start = centres[:, axis, None] - size // 2
        position = jnp.arange(length)
        return (position >= start) & (position < start + size)

    square = inside(0, height)[:, :, None] & inside(1, width)[:, None, :]
    return jnp.where(square[..., None], 0, x).astype(x.dtype)


AUGMENTATIONS: dict[str, Callable[..., Any]] = {
    "crop": crop,
    "flip": flip,
    "cutout": cutout,
}


def _require_images(name: str, x: Array) -> None:
    if x.ndim != 4:
        raise ValueError(
            f"augment {name!r} takes images [H, W, C], but examples have the shape "
            f"{list(x.shape[1:])}; leave it out, or write your own (docs/models.md)"
        )


def make(choices: Sequence[Component], input_shape: tuple[int, ...]) -> Augment:
    """The function that applies these augmentations in their order.

    Raises:
      ValueError: one is unknown, or changes or does not take examples of this shape.
    """
    steps = []
    shape = 2, *input_shape
    example = jax.ShapeDtypeStruct(shape, jnp.float32)
    key = jax.eval_shape(jax.random.key, 0)
    for choice in choices:
        factory = factories.find("augment", AUGMENTATIONS, choice.name)
        factories.check("augment", choice, factory)
        step = partial(factory, **choice.options)
        made = getattr(jax.eval_shape(step, example, key), "shape", None)
        if made != shape:
            raise ValueError(
                f"augment {choice.name} makes examples of shape {made} of {shape}; "
                "expected the same shape"
            )
        steps.append(step)

    def apply(x: Array, key: Key) -> Array:
        keys = jax.random.split(key, len(steps))
        return reduce(
            lambda x, step: step[0](x, step[1]), zip(steps, keys, strict=True), x
        )

    return apply


def augment(task: Task, function: Augment) -> Task:
    """The task, whose batches are augmented in training mode, with the step's key."""

    def before(output: Callable[..., Array]) -> Callable[..., Array]:
        def compute(params: Params, batch: Batch, key: Key | None) -> Array:
            if key is not None:
                # A purpose of its own: dropout keeps its stream.
                x = function(batch.x, derive(key, "augment"))
                batch = batch._replace(x=x)
            return output(params, batch, key)

        return compute

    return task._replace(
        loss=before(task.loss),
        logits=before(task.logits),
        features=before(task.features),
    )
