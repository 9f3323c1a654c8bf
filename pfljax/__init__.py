"""pfljax: personalised federated learning in JAX, vectorised over clients.

Names load on first use, so that importing the package costs nothing.
"""

import importlib
from typing import Any

_HOME = {
    "Algorithm": "types",
    "Batch": "types",
    "ClientData": "types",
    "Cohort": "types",
    "Examples": "types",
    "Local": "types",
    "RunState": "types",
    "Task": "types",
    "Turn": "types",
    "Experiment": "config",
    "Federation": "data",
    "Setting": "engine",
    "federate": "data",
    "fit": "local",
    "from_arrays": "data",
    "run": "experiment",
    "task": "models",
}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'pfljax' has no attribute {name!r}")
    return getattr(importlib.import_module(f"pfljax.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
