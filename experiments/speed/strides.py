"""Milliseconds of convolutions with strides, dilation or groups, by their form.

    taskset -c 0 python experiments/speed/strides.py [--clients 4 --steps 3]

A convolution of ten images and its two gradients run on one core, in a loop whose
kernel changes. The forms are "auto", which models use, columns, and JAX's own
`lax.conv_general_dilated`. Several clients run under `vmap`, each with its own images
and kernel.
"""

import time

import jax
import jax.numpy as jnp

from experiments.shared import script
from experiments.shared.script import Positive
from pfljax.models.convolution import conv_for_platform

FORMS = ("auto", "im2col", "lax")
BATCH = 10
# pixels, inputs, outputs, kernel, strides, dilation, groups
CASES = (
    (32, 32, 64, 3, 1, 1, 1),
    (32, 32, 64, 3, 2, 1, 1),
    (16, 128, 256, 3, 2, 1, 1),
    (16, 64, 128, 1, 2, 1, 1),
    (32, 16, 16, 3, 1, 2, 1),
    (16, 64, 64, 3, 1, 2, 1),
    (32, 32, 32, 3, 1, 1, 2),
    (32, 32, 32, 3, 1, 1, 4),
    (32, 32, 32, 3, 1, 1, 8),
    (32, 32, 32, 3, 1, 1, 16),
    (16, 128, 128, 3, 1, 1, 4),
    (16, 128, 128, 3, 1, 1, 32),
    (32, 32, 32, 3, 1, 1, 32),
    (16, 128, 128, 3, 2, 1, 128),
    (8, 256, 256, 3, 1, 1, 256),
)


def milliseconds(form: str, case: tuple[int, ...], clients: int, steps: int) -> float:
    """The least of three loops, of all clients' convolutions and their gradients."""
    pixels, inputs, outputs, window, stride, dilation, groups = case
    convolution = conv_for_platform(form)
    shape = (clients, BATCH, pixels, pixels, inputs)
    x = jax.random.normal(jax.random.key(0), shape)
    shape = (clients, window, window, inputs // groups, outputs)
    kernel = jax.random.normal(jax.random.key(1), shape)
    if clients == 1:
        x, kernel = x[0], kernel[0]

    def loss(x, kernel):
        y = convolution(
            x,
            kernel,
            (stride, stride),
            "SAME",
            rhs_dilation=(dilation, dilation),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )
        return jnp.sum(jnp.sin(y))

    slopes = jax.grad(loss, (0, 1))

    def step(_, pair):
        change = (slopes if clients == 1 else jax.vmap(slopes))(*pair)
        return jax.tree.map(lambda p, g: p - 1e-6 * g, pair, change)

    run = jax.jit(lambda pair: jax.lax.fori_loop(0, steps, step, pair))
    jax.block_until_ready(run((x, kernel)))
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(run((x, kernel)))
        taken.append(time.perf_counter() - start)
    return 1000 * min(taken) / steps


def main(clients: Positive = 1, steps: Positive = 20) -> None:
    """Prints a table in Markdown.

    Args:
      clients: beside each other.
      steps: of a loop.
    """
    names = ("pixels", "channels", "kernel", "strides", "dilation", "groups", *FORMS)
    print(f"| {' | '.join(names)} |")
    print("|---" * len(names) + "|")
    for case in CASES:
        pixels, inputs, outputs, window, *rest = case
        cells = [f"{pixels}x{pixels}", f"{inputs} to {outputs}", f"{window}x{window}"]
        cells += [str(number) for number in rest]
        cells += [f"{milliseconds(form, case, clients, steps):.2f}" for form in FORMS]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    script.run(main)
