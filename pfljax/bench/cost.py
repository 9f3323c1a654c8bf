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
from pfljax.core.communication import shapes_of_client, traffic_of
from pfljax.core.types import Batch, ClientData, Key, Params, Turn

SIDE, PRODUCTS, TRIES = 2048, 4, 5  # of the probe of the machine's peak


def step_flops(ready: Ready) -> int:
    """FLOPs of the products in one local step of the method.

    Ditto's step of data is one for each of its two models.
    """
    algorithm = ready.setting.algorithm

    def train(turn: Turn, server: Any, client: Any, data: ClientData) -> Any:
        return algorithm.train(turn, algorithm.message(server, client), client, data)

    return product_flops(train, *_shapes(ready))


def step_bytes(ready: Ready) -> float | None:
    """Bytes that one SGD step on the loss reads and writes, by XLA.

    None for a model with a loop, for XLA counts its body once.
    """
    local, task, workload = ready.setting.local, ready.task, ready.workload
    rate: Any = local.learning_rate
    optimizer = local.optimizer(rate)

    def step(params: Params, batch: Batch, key: Key) -> Params:
        grads = jax.grad(task.loss)(params, batch, key)
        updates, _ = optimizer.update(grads, optimizer.init(params), params)
        return optax.apply_updates(params, updates)

    key: Any = jax.eval_shape(jax.random.key, 0)
    params = jax.eval_shape(task.init, key)
    shape: Any = jax.ShapeDtypeStruct
    x = shape((local.batch_size, *workload.shape), ready.train.examples.x.dtype)
    y, mask = (shape((local.batch_size,), kind) for kind in (jnp.int32, jnp.float32))
    args = params, Batch(x, y, mask), key
    if has_loop(step, *args):
        return None
    cost = jax.jit(step).lower(*args).compile().cost_analysis()
    return (cost or {}).get("bytes accessed")


def _shapes(ready: Ready) -> tuple[Any, ...]:
    """(turn, server, one client's state, its data) as shapes."""
    algorithm, task = ready.setting.algorithm, ready.task
    key: Any = jax.eval_shape(jax.random.key, 0)
    state = jax.eval_shape(lambda key: engine.init(algorithm, task, 1, key), key)
    client = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), state.clients
    )
    data = shapes_of_client(ready.workload.shape)
    turn = Turn(key, data.size, data.size)
    return turn, state.server, client, data


def traffic_bytes(ready: Ready) -> int:
    """Bytes down and up of a whole cohort in one round."""
    workload = ready.workload
    one = traffic_of(
        ready.setting.algorithm, ready.task, workload.clients, workload.shape
    )
    return workload.cohort * (one.down + one.up)


def peak_flops(devices: Sequence[Any] | None = None) -> float:
    """FLOP/s of large f32 products, on all `devices` at once; the best of several."""
    devices = devices or jax.devices()[:1]
    product = jax.jit(jnp.matmul)
    ones = jnp.ones((SIDE, SIDE), jnp.float32)
    squares = [jax.device_put(ones, device) for device in devices]

    def seconds() -> float:
        start = time.perf_counter()
        jax.block_until_ready([product(s, s) for s in squares * PRODUCTS])
        return time.perf_counter() - start

    seconds()
    fastest = min(seconds() for _ in range(TRIES))
    return PRODUCTS * len(squares) * 2 * SIDE**3 / fastest


def process_megabytes() -> float:
    """The most memory that this process has ever held; later workloads include it."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def device_bytes() -> int | None:
    """The most memory that was in use on the device, where it tells."""
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def parameters(ready: Ready) -> int:
    """Numbers in one model."""
    shapes = jax.eval_shape(ready.task.init, jax.eval_shape(jax.random.key, 0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))
