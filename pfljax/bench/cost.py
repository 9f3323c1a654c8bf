"""What a local step costs, and what the machine could do."""

import resource
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from pfljax import engine
from pfljax.bench.flops import has_loop, product_flops
from pfljax.bench.workloads import Ready
from pfljax.core.communication import shapes_of_client, shapes_of_model
from pfljax.core.types import Batch, ClientData, Key, Params, Turn
from pfljax.simulate import architectures

# The probe of the machine's peak: products of SIDE x SIDE, so many a call.
SIDE = 2048
PRODUCTS = 4
TRIES = 5


def step_flops(ready: Ready) -> int:
    """FLOPs of the products in one local step of the method.

    Ditto's step of data is one for each of its two models.
    """
    algorithm = ready.setting.algorithm

    def train(turn: Turn, server: Any, client: Any, data: ClientData) -> Any:
        return algorithm.train(
            turn, algorithm.message(turn, server, client), client, data
        )

    return product_flops(train, *_shapes(ready))


def step_bytes(ready: Ready) -> float | None:
    """Bytes that one SGD step on the loss reads and writes, by XLA.

    None for a model with a loop, for XLA counts its body once.
    """
    lowered = _lowered_step(ready)
    # A backend may keep no account.
    account = lowered.compile().cost_analysis() if lowered else None
    return (account or {}).get("bytes accessed")


def step_xla_flops(ready: Ready) -> float | None:
    """FLOPs of all operations in one SGD step on the loss, by XLA; None as above.

    `step_flops` counts products alone, but of all models that the method trains.
    """
    lowered = _lowered_step(ready)
    # Before XLA compiles it: nothing is a call of a library yet, of which XLA counts
    # nothing.
    account = lowered.cost_analysis() if lowered else None
    return (account or {}).get("flops")


def _lowered_step(ready: Ready) -> Any:
    """One SGD step on the loss, lowered; None for a model with a loop."""
    local = ready.setting.local
    task = ready.task
    rate: Any = local.learning_rate
    optimizer = local.optimizer(rate)

    def step(params: Params, batch: Batch, key: Key) -> Params:
        grads = jax.grad(task.loss)(params, batch, key)
        updates, _ = optimizer.update(grads, optimizer.init(params), params)
        return optax.apply_updates(params, updates)

    key: Any = jax.eval_shape(jax.random.key, 0)
    arguments = (shapes_of_model(task), _batch_shape(ready), key)
    if has_loop(step, *arguments):
        return None
    return jax.jit(step).lower(*arguments)


def _batch_shape(ready: Ready) -> Batch:
    """One minibatch as shapes."""
    rows = ready.setting.local.batch_size
    shape: Any = jax.ShapeDtypeStruct
    return Batch(
        x=shape((rows, *ready.workload.shape), ready.train.examples.x.dtype),
        y=shape((rows,), jnp.int32),
        mask=shape((rows,), jnp.float32),
    )


def _shapes(ready: Ready) -> tuple[Any, ...]:
    """(turn, server, one client's state, its data) as shapes."""
    task = ready.task
    key: Any = jax.eval_shape(jax.random.key, 0)
    state = jax.eval_shape(lambda key: engine.init(ready.setting, task, 1, key), key)
    # Clients are stacked: one client's leaves lack the first axis.
    client = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), state.clients
    )
    data = shapes_of_client(ready.workload.shape)
    turn = Turn(
        key=key, round=data.size, steps=data.size, id=data.size, num_clients=1,
        public=data,
    )  # fmt: skip
    return turn, state.server, client, data


def traffic_bytes(ready: Ready) -> int:
    """Bytes down and up of a whole cohort in one round, were all as the mean client."""
    workload = ready.workload
    traffic = architectures.traffic(
        ready.setting, ready.task, workload.clients, workload.shape
    )
    return workload.cohort * (traffic.down + traffic.up)


def peak_flops(devices: Sequence[Any] | None = None) -> float:
    """FLOP/s of large f32 products, on all `devices` at once; the best of several."""
    devices = devices or jax.devices()[:1]
    product = jax.jit(jnp.matmul)
    ones = jnp.ones((SIDE, SIDE), jnp.float32)
    squares = [jax.device_put(ones, device) for device in devices]

    def seconds() -> float:
        start = time.perf_counter()
        # All devices work at once: nothing waits before the last was called.
        products = [product(square, square) for square in squares * PRODUCTS]
        jax.block_until_ready(products)
        return time.perf_counter() - start

    seconds()  # compiles
    # The best: whatever else the machine does can only slow it down.
    fastest = min(seconds() for _ in range(TRIES))
    flops = PRODUCTS * len(squares) * 2 * SIDE**3
    return flops / fastest


def process_megabytes() -> float:
    """The most memory that this process has ever held; later workloads include it."""
    # Bytes on macOS, KiB elsewhere.
    unit = 1 if sys.platform == "darwin" else 1024
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_maxrss * unit / 1e6


def device_bytes() -> int | None:
    """The most memory that was in use on the device, where it keeps count."""
    statistics = jax.devices()[0].memory_stats() or {}
    return statistics.get("peak_bytes_in_use")


def parameters(ready: Ready) -> int:
    """Numbers in one model."""
    shapes = shapes_of_model(ready.task)
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))
