"""Steps of the convolutional models on a CPU, by the form of their convolutions.

    python experiments/speed/convolutions.py [--names twocnn cifar_cnn] [--steps 8]

A step has a batch of ten images [32, 32, 3] on one device, and the steps run in a loop
as in a round. The script prints the milliseconds of a step, as the fastest of five
calls: by the clock, and by the processor time of all cores, which other programs
disturb less. It also prints the megabytes of temporaries in the compiled program.
"""

import os
import time
from collections.abc import Callable
from typing import Any

# Before JAX is loaded: one device, whose products may use all cores.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")

import jax
import jax.numpy as jnp
from jax import lax

from experiments.shared import script
from experiments.shared.script import Positive
from pfljax import models
from pfljax.core.types import Batch, Task

FORMS = ("im2col", "auto")
CALLS = 5
BATCH = 10
SHAPE = (32, 32, 3)
CLASSES = 10
RATE = 1e-3


def main(
    names: tuple[str, ...] = ("twocnn", "cifar_cnn", "vgg9", "resnet9"),
    steps: Positive = 8,
) -> None:
    """Prints a Markdown table."""
    print("| model | form | ms a step | of CPU | MB of temporaries |")
    print("|---|---|---|---|---|")
    for name in names:
        for form in FORMS:
            task = models.task(models.model(name, CLASSES, conv=form), SHAPE)
            wall, cpu, temporaries = measured(task, steps)
            print(f"| {name} | {form} | {wall:.1f} | {cpu:.1f} | {temporaries:.0f} |")


def measured(task: Task, steps: int) -> tuple[float, float, float]:
    """(milliseconds a step by the clock, of all cores, megabytes of temporaries)."""
    params = task.init(jax.random.key(0))
    compiled = jax.jit(training(task, steps)).lower(params).compile()
    jax.block_until_ready(compiled(params))
    walls = []
    cpus = []
    for _ in range(CALLS):
        wall = time.perf_counter()
        cpu = time.process_time()
        jax.block_until_ready(compiled(params))
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    memory = compiled.memory_analysis()
    return (
        1e3 * min(walls) / steps,
        1e3 * min(cpus) / steps,
        memory.temp_size_in_bytes / 1e6,
    )


def training(task: Task, steps: int) -> Callable[[Any], Any]:
    """A function of parameters: what they are after so many steps of one batch."""
    x = jax.random.normal(jax.random.key(1), (BATCH, *SHAPE))
    y = jnp.arange(BATCH) % CLASSES
    batch = Batch.full(x)

    def loss(params: Any) -> jax.Array:
        log_probabilities = jax.nn.log_softmax(task.predict(params, batch))
        return -jnp.take_along_axis(log_probabilities, y[:, None], axis=1).mean()

    def step(_: int, params: Any) -> Any:
        slopes = jax.grad(loss)(params)
        return jax.tree.map(lambda p, slope: p - RATE * slope, params, slopes)

    return lambda params: lax.fori_loop(0, steps, step, params)


if __name__ == "__main__":
    script.run(main)
