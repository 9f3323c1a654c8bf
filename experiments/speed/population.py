"""The time of a round by the number of clients, with a cohort of 10.

    python experiments/speed/population.py

FedPer runs on 64-dimensional examples, with a personal head of 650 numbers and 20
examples for each client, and one epoch of batches of 10. The script prints the
microseconds of a round, as the median of five calls of 200 rounds each, and the bytes
of temporaries that the compiled rounds need.

On two busy CPU cores, a round took 4681, 4569, 2563 and 3134 microseconds with 100,
1,000, 10,000 and 100,000 clients, and needed 355,496 bytes with each.
"""

import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from experiments.shared import script
from pfljax import engine, models
from pfljax.algorithms.decoupling.fedper import fedper
from pfljax.core.types import ClientData, Examples, Local
from pfljax.selection import uniform

ROUNDS = 200
ROWS = 20


def measure(num_clients: int) -> tuple[float, int]:
    """(microseconds a round, bytes of temporaries) with this many clients."""
    rng = np.random.default_rng(0)
    pool = Examples(
        jnp.asarray(rng.normal(size=(1000, 64)), jnp.float32),
        jnp.asarray(rng.integers(0, 10, 1000), jnp.int32),
    )
    offset = jnp.asarray(np.arange(num_clients) * ROWS % 980, jnp.int32)
    train = ClientData(pool, offset, jnp.full(num_clients, ROWS, jnp.int32))
    task = models.task(models.model("mlp", 10), (64,))
    local = Local(learning_rate=0.1, batch_size=10)
    algorithm = fedper(task, local)
    setting = engine.Setting(algorithm, local, uniform(10, num_clients), width=1)
    state = engine.init(setting, task, num_clients, jax.random.key(0))
    lowered = engine.compile_rounds(setting, ROUNDS).lower(state, train, ROUNDS)
    run = lowered.compile()
    state, _ = jax.block_until_ready(run(state, train, jnp.int32(1)))
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        state, _ = jax.block_until_ready(run(state, train, jnp.int32(ROUNDS)))
        seconds.append(time.perf_counter() - start)
    used = run.memory_analysis().temp_size_in_bytes
    return statistics.median(seconds) / ROUNDS * 1e6, used


def main() -> None:
    """Prints the time of a round and its temporaries by the number of clients."""
    for num_clients in (100, 1_000, 10_000, 100_000):
        microseconds, used = measure(num_clients)
        took = f"{microseconds:7.0f} us a round, {used:,} bytes"
        print(f"{num_clients:7,} clients: {took}")


if __name__ == "__main__":
    script.run(main)
