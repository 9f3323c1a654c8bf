"""What a local step costs, and what the machine could do."""

import resource
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.bench.workloads import Ready
from pfljax.core.communication import shapes_of_model
from pfljax.simulate import architectures, step_cost
from pfljax.simulate.step_cost import Step

# The probe of the machine's peak: products of SIDE x SIDE, so many a call.
SIDE = 2048
PRODUCTS = 4
TRIES = 5


def step_flops(ready: Ready) -> float:
    """FLOPs of the products in one local step of the method."""
    return step_cost.products(_step(ready))


def step_bytes(ready: Ready) -> float | None:
    """Bytes that one SGD step on the loss reads and writes, by XLA.

    None for a model with a loop, for XLA counts its body once.
    """
    lowered = step_cost.lowered(_step(ready))
    # A backend may keep no account.
    account = lowered.compile().cost_analysis() if lowered else None
    return (account or {}).get("bytes accessed")


def step_xla_flops(ready: Ready) -> float | None:
    """FLOPs of all operations in one SGD step on the loss, by XLA; None as above."""
    return step_cost.by_xla(_step(ready))


def _step(ready: Ready) -> Step:
    """What a client of the workload does a step of."""
    row = jax.ShapeDtypeStruct(ready.workload.shape, ready.train.examples.x.dtype)
    setting = ready.setting
    return Step(setting.algorithm, ready.task, setting.local, row)


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
