"""Which devices a run uses.

A CPU is one device to JAX, and its threads help little with batches of ten rows: one
device a core, each training clients of its own, is faster.
"""

import os
from typing import Any

import jax

_config: Any = jax.config  # its attributes are made at run time


def prepare() -> None:
    """Makes every CPU core a device of its own, if JAX has not started.

    Does nothing where the user has said how many (jax_num_cpu_devices or XLA_FLAGS).
    """
    told = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if told or _config.jax_num_cpu_devices != -1:
        return
    try:
        jax.config.update("jax_num_cpu_devices", cores())
    except RuntimeError:  # JAX has started: its devices are what they are
        return


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def at_hand(wanted: int | None) -> int | None:
    """`wanted` devices, or None where there are fewer than a run had."""
    prepare()
    return wanted if wanted is None or wanted <= len(jax.devices()) else None


def choose(wanted: int | None, cohort: int) -> int:
    """The devices of a run: `wanted`, or all that a cohort of this size can use.

    Raises:
      ValueError: there are fewer devices than wanted.
    """
    found, processes = jax.devices(), jax.process_count()
    each = [len(jax.local_devices(process_index=i)) for i in range(processes)]
    if wanted is None:
        usable = min(each)
        if processes == 1 and found[0].platform == "cpu":
            usable = min(usable, cores())
        return processes * max(1, min(usable, cohort // processes))
    if wanted > len(found):
        raise ValueError(
            f"devices is {wanted}, but JAX has {len(found)} ({found[0].platform}); "
            f"choose at most {len(found)}"
        )
    if wanted % processes or wanted > processes * min(each):
        raise ValueError(
            f"devices is {wanted}, but each of the {processes} processes gives equally "
            f"many; choose a multiple of {processes}, at most {processes * min(each)}"
        )
    return wanted
