"""Which devices a run uses.

A CPU is one device to JAX, and its threads help little with batches of ten rows: one
device a core, each training clients of its own, is faster.
"""

import os

import jax


def prepare() -> None:
    """Makes every CPU core a device of its own, if JAX has not started.

    Does nothing where the user has said how many (jax_num_cpu_devices or XLA_FLAGS).
    """
    told = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if told or jax.config.jax_num_cpu_devices != -1:
        return
    try:
        jax.config.update("jax_num_cpu_devices", cores())
    except RuntimeError:  # JAX has started: its devices are what they are
        return


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def choose(wanted: int | None, cohort: int) -> int:
    """The devices of a run: `wanted`, or all that a cohort of this size can use.

    Raises:
      ValueError: there are fewer devices than wanted.
    """
    found = jax.devices()
    if wanted is None:
        usable = min(len(found), cores()) if found[0].platform == "cpu" else len(found)
        return min(usable, cohort)
    if wanted > len(found):
        raise ValueError(
            f"devices is {wanted}, but JAX has {len(found)} ({found[0].platform}); "
            f"choose at most {len(found)}"
        )
    return wanted
