"""Milliseconds of pooling, and of convolutions of single channels, by their form.

    taskset -c 0 python experiments/speed/pooling.py

Each operation and its gradients run on ten images on one core, in a loop whose input
changes: in the form that models use, and in other forms.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from experiments.shared import script
from pfljax.models.convolution_forms import by_channel, by_lax
from pfljax.models.pooling import max_pool
from pfljax.models.windows import Form, Window, all_sides, shift

STEPS = 20
BATCH = 10
IMAGES = ((32, 32), (16, 64))  # pixels, channels


def squares(x: jax.Array) -> jax.Array:
    """Flax's maximum of each 2x2 square."""
    return nn.max_pool(x, (2, 2), (2, 2))


def by_products(x: jax.Array, kernel: jax.Array, form: Form) -> jax.Array:
    """Each channel under its own filter: a product by channel, of its columns."""
    columns = jnp.stack(list(shift(x, form.window)))
    return jnp.einsum("kbhwc,kc->bhwc", columns, kernel.reshape(-1, form.channels))


def milliseconds(operation: Callable[..., jax.Array], steps: int, *args: Any) -> float:
    """The least of three loops, of the operation and its gradients in `args`."""

    def loss(args: Any) -> jax.Array:
        return jnp.sum(jnp.sin(operation(*args)))

    def step(_: Any, args: Any) -> Any:
        return jax.tree.map(lambda a, g: a - 1e-6 * g, args, jax.grad(loss)(args))

    run = jax.jit(lambda args: jax.lax.fori_loop(0, steps, step, args))
    jax.block_until_ready(run(args))
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(run(args))
        taken.append(time.perf_counter() - start)
    return 1000 * min(taken) / steps


def main() -> None:
    """Prints two tables in Markdown."""
    print("| pixels, channels | squares by slices | `nn.max_pool` |\n|---|---|---|")
    for pixels, channels in IMAGES:
        x = jax.random.normal(jax.random.key(0), (BATCH, pixels, pixels, channels))
        cells = [f"{milliseconds(f, STEPS, x):.2f}" for f in (max_pool, squares)]
        print(f"| {pixels}x{pixels}, {channels} | {' | '.join(cells)} |", flush=True)
    print("\n| 3x3 of single channels | shifted | products | XLA |\n|---|---|---|---|")
    for pixels, channels in IMAGES:
        x = jax.random.normal(jax.random.key(0), (BATCH, pixels, pixels, channels))
        kernel = jax.random.normal(jax.random.key(1), (3, 3, 1, channels))
        window = Window(size=(3, 3), padding=all_sides(1))
        form = Form(window, (pixels, pixels), channels, channels, groups=channels)
        cells = []
        for each, steps in ((by_channel, STEPS), (by_products, STEPS), (by_lax, 1)):
            taken = milliseconds(partial(each, form=form), steps, x, kernel)
            cells.append(f"{taken:.2f}")
        print(f"| {pixels}x{pixels}, {channels} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    script.run(main)
