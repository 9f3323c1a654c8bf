"""A convolution and its gradients by columns, by XLA and by tiles, for several shapes.

    taskset -c 0 python experiments/speed/tiles.py

The script prints the milliseconds of all three on one core in a loop, as the fastest of
five calls, and the form that `pfljax.models.convolution_forms` chooses.
"""

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

# Before JAX is loaded: one device.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")

import jax
import jax.numpy as jnp
from jax import lax

from experiments.shared import script
from pfljax.models import convolution_forms as forms
from pfljax.models import tiles
from pfljax.models.windows import Form, Window, all_sides

CALLS = 5
STEPS = 8
NUDGE = 1e-9  # makes a step wait for the one before
COLUMNS = ("batch", "pixels", "channels", "kernel", "columns", "XLA", "tiles", "taken")


class Shape(NamedTuple):
    """A convolution of square images, with a stride of 1."""

    batch: int
    pixels: int
    channels: int
    outputs: int
    kernel: int
    padding: int


SHAPES = (
    Shape(10, 16, 32, 64, kernel=5, padding=2),  # TwoCNN
    Shape(10, 30, 32, 64, kernel=3, padding=0),  # the CIFAR-10 CNN
    Shape(20, 32, 64, 64, kernel=3, padding=1),  # ResNet-18, its four widths
    Shape(20, 16, 128, 128, kernel=3, padding=1),
    Shape(20, 8, 256, 256, kernel=3, padding=1),
    Shape(20, 4, 512, 512, kernel=3, padding=1),
    Shape(10, 32, 16, 16, kernel=3, padding=1),  # few channels
    Shape(10, 32, 8, 16, kernel=3, padding=1),
    Shape(10, 4, 256, 256, kernel=3, padding=1),  # few tiles
    Shape(10, 2, 512, 512, kernel=3, padding=1),
)


class Ways(NamedTuple):
    """The three operations in one form."""

    forward: Callable[..., Any]
    by_images: Callable[..., Any]
    by_kernel: Callable[..., Any]


BY_COLUMNS = Ways(
    forms.by_columns,
    partial(forms.image_gradient, forms.by_columns),
    forms.columns_kernel,
)
BY_XLA = Ways(
    forms.by_lax, partial(forms.convolve_slope, forms.by_lax), forms.convolve_channels
)


def by_tiles(size: int) -> Ways:
    """All three by tiles with so many results along an axis."""
    forward = partial(tiles.forward, size=size)
    return Ways(
        forward,
        partial(forms.convolve_slope, forward),
        partial(tiles.by_kernel, size=size),
    )


def milliseconds(ways: Ways, shape: Shape) -> float:
    """Of the convolution and its two gradients."""
    form = form_of(shape)
    keys = jax.random.split(jax.random.key(0), 3)
    images = (shape.batch, *form.image, form.channels)
    x = jax.random.normal(keys[0], images)
    kernel = jax.random.normal(keys[1], form.kernel)
    slope = jax.random.normal(keys[2], (shape.batch, *form.slope, form.outputs))

    def step(_: int, nudge: jax.Array) -> jax.Array:
        made = (
            ways.forward(x + nudge, kernel + nudge, form),
            ways.by_images(slope + nudge, kernel + nudge, form),
            ways.by_kernel(x + nudge, slope + nudge, form),
        )
        return NUDGE * sum(jnp.sum(each) for each in made)

    loop = jax.jit(lambda nudge: lax.fori_loop(0, STEPS, step, nudge))
    start = jnp.zeros(())
    jax.block_until_ready(loop(start))
    times = []
    for _ in range(CALLS):
        started = time.perf_counter()
        jax.block_until_ready(loop(start))
        times.append(time.perf_counter() - started)
    return 1e3 * min(times) / STEPS


def form_of(shape: Shape) -> Form:
    """What the library knows of the convolution."""
    window = Window((shape.kernel, shape.kernel), padding=all_sides(shape.padding))
    image = (shape.pixels, shape.pixels)
    return Form(window, image, shape.channels, shape.outputs)


def main() -> None:
    """Prints a Markdown table."""
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|{'---|' * len(COLUMNS)}")
    for shape in SHAPES:
        form = form_of(shape)
        images = jax.ShapeDtypeStruct(
            (shape.batch, *form.image, form.channels), jnp.float32
        )
        size = forms.tile_size(form, images)
        of_tiles = ", ".join(
            f"{milliseconds(by_tiles(each), shape):.2f} ({each}x{each})"
            for each in forms.TILES[form.window.size]
        )
        row = (
            shape.batch,
            f"{shape.pixels}x{shape.pixels}",
            f"{shape.channels} to {shape.outputs}",
            f"{shape.kernel}x{shape.kernel}",
            f"{milliseconds(BY_COLUMNS, shape):.2f}",
            f"{milliseconds(BY_XLA, shape):.2f}",
            of_tiles,
            f"tiles of {size}x{size}" if size else "as before",
        )
        print(f"| {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    script.run(main)
