"""The versions and devices of a run."""

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

PACKAGES = ("pfljax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def now() -> dict[str, Any]:
    """Versions, devices and processor, for environment.json."""
    # Here alone: reports read run folders without JAX.
    import jax

    program = Path(sys.argv[0]).name
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "devices": [f"{d.platform}: {d.device_kind}" for d in jax.devices()],
        "command": " ".join([program, *sys.argv[1:]]),
    }


def _version(name: str) -> str:
    """The package's version; it may be on the path without being installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
