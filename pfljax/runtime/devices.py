"""The devices of a run.

JAX takes a CPU as one device, whose threads help little with batches of ten examples.
One device for each core, which trains its own clients, is faster.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

import jax

DAY = 24 * 60 * 60  # seconds
FLAGS = {
    # Else XLA aborts the process when a device waits a minute for another's clients.
    "xla_cpu_collective_call_warn_stuck_timeout_seconds": DAY,
    "xla_cpu_collective_call_terminate_timeout_seconds": DAY,
    # Parameters are then updated in place: W2 does a seventh more steps a second.
    "xla_cpu_copy_insertion_use_region_analysis": "true",
    # On a GPU XLA's own kernels for products abort the process where they tile the
    # windows of convolutions (ResNet-18, jaxlib 0.11.2). The vendor's library does not.
    "xla_gpu_enable_triton_gemm": "false",
}

_config: Any = jax.config  # its attributes are made at run time


def prepare() -> None:
    """Makes every CPU core a device of its own, if JAX has not started.

    Does nothing if the user has set their number (jax_num_cpu_devices or XLA_FLAGS).
    """
    _add_flags()
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_force_host_platform_device_count" in flags:
        return
    # -1 is JAX's default.
    if _config.jax_num_cpu_devices != -1:
        return
    # A RuntimeError means that JAX has started: its devices are what they are.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", cores())


def _add_flags() -> None:
    """Adds `FLAGS` to XLA_FLAGS; the user's own take precedence."""
    flags = os.environ.get("XLA_FLAGS", "")
    if flags and not flags.lstrip().startswith("-"):  # a file of flags, for XLA alone
        return
    more = [f"--{name}={value}" for name, value in FLAGS.items() if name not in flags]
    os.environ["XLA_FLAGS"] = " ".join([flags, *more]).strip()


def clean_environment() -> dict[str, str]:
    """The environment without `FLAGS`, for a program whose XLA may not know them."""
    added = {f"--{name}={value}" for name, value in FLAGS.items()}
    flags = os.environ.get("XLA_FLAGS", "").split()
    kept = [flag for flag in flags if flag not in added]
    return os.environ | {"XLA_FLAGS": " ".join(kept)}


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def at_hand(wanted: int | None) -> int | None:
    """`wanted`, the devices that a run had; None if there are fewer now."""
    prepare()
    return wanted if wanted is None or wanted <= len(check()) else None


def check(wanted: int | None = None) -> list[Any]:
    """All devices, after checking that there are as many as `wanted`.

    Raises:
      ValueError: JAX has no device of JAX_PLATFORMS, or fewer than wanted, or it is
        set to float64 or not to compile.
    """
    if _config.jax_enable_x64:
        raise ValueError(
            "JAX_ENABLE_X64 is set, but pfljax trains in float32; unset it, or set "
            "jax_enable_x64 to False"
        )
    if _config.jax_disable_jit:
        raise ValueError(
            "JAX_DISABLE_JIT is set, but without compiled programs a round takes "
            "hours; unset it, or set jax_disable_jit to False"
        )
    # If the plugin of a platform is missing, JAX only fails an assertion.
    try:
        devices = jax.devices()
    except (RuntimeError, AssertionError) as error:
        raise ValueError(_no_device(error)) from None
    if wanted is not None and wanted > len(devices):
        raise ValueError(
            f"devices is {wanted}, but JAX has {len(devices)} ({devices[0].platform}); "
            f"choose at most {len(devices)}"
        )
    return devices


def _no_device(error: Exception) -> str:
    """Why JAX has no device, in one line."""
    asked = _config.jax_platforms or ""
    reason, *_ = str(error).splitlines() or ["it is not installed"]
    reason = reason.partition(" (set JAX_PLATFORMS")[0]
    return (
        f"JAX_PLATFORMS is {asked!r}, but JAX finds no such device ({reason}); unset "
        "it, or install what JAX needs for that device, such as pfljax[cuda12]"
    )


def choose(wanted: int | None, cohort: int) -> int:
    """The devices of a run: `wanted`, or all that a cohort of this size can use.

    Raises:
      ValueError: there are fewer devices than wanted.
    """
    num_processes = jax.process_count()
    # Every process gives equally many devices.
    usable = min(len(jax.local_devices(process_index=i)) for i in range(num_processes))
    if wanted is None:
        # More CPU devices than cores would take turns.
        if num_processes == 1 and jax.devices()[0].platform == "cpu":
            usable = min(usable, cores())
        return num_processes * max(1, min(usable, cohort // num_processes))
    _check_available(wanted, num_processes, usable)
    return wanted


def _check_available(wanted: int, num_processes: int, usable: int) -> None:
    check(wanted)
    most = num_processes * usable
    if wanted % num_processes or wanted > most:
        raise ValueError(
            f"devices is {wanted}, but each of the {num_processes} processes gives "
            f"equally many; choose a multiple of {num_processes}, at most {most}"
        )


def use_compile_cache() -> None:
    """Keeps all compiled programs between runs, unless the user has set otherwise.

    JAX_COMPILATION_CACHE_DIR is their folder; programs that compile in less than
    JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS are not kept.
    """
    if not _config.jax_compilation_cache_dir:
        cache = Path.home() / ".cache" / "pfljax" / "xla"
        jax.config.update("jax_compilation_cache_dir", str(cache))
    # JAX's own threshold is a second, which no program of a small run reaches.
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
