"""The methods: a folder a family, a file a method; file, function and key are one word.

A family is what a client keeps. `PFLJAX_METHODS`, an environment variable, names
folders with methods of one's own; their files are imported as
`pfljax.algorithms.NAME`.
"""

import importlib
import os
import pkgutil
from collections.abc import Callable
from pathlib import Path

from pfljax import registry


def methods() -> dict[str, Callable]:
    """Every method by its name.

    Raises:
      ValueError: a folder of `PFLJAX_METHODS` is none, or a file has no such function.
    """
    return {name: _function(module) for name, module in sorted(_modules().items())}


def method(name: str) -> Callable:
    """The method of this name.

    Raises:
      ValueError: it is unknown; the message lists the known ones.
    """
    return _function(registry.find("algorithm", _modules(), name))


def families() -> dict[str, str]:
    """The family of every method; "" for one that lies in no folder of a family."""
    return {name: ".".join(m.split(".")[2:-1]) for name, m in _modules().items()}


def _modules() -> dict[str, str]:
    """The module of every method, by the method's name; none is imported."""
    for folder in filter(None, os.environ.get("PFLJAX_METHODS", "").split(os.pathsep)):
        if not os.path.isdir(folder):
            raise ValueError(f"PFLJAX_METHODS has {folder!r}, which is no folder")
        if folder not in __path__:
            __path__.append(folder)
    modules = {}
    for _, module, is_family in pkgutil.iter_modules(__path__, "pfljax.algorithms."):
        inside = [module]
        if is_family:
            paths = [str(Path(path, module.split(".")[-1])) for path in __path__]
            inside = [m.name for m in pkgutil.iter_modules(paths, module + ".")]
        names = {name.split(".")[-1]: name for name in inside}
        modules |= {k: v for k, v in names.items() if not k.startswith("_")}
    return modules


def _function(module: str) -> Callable:
    """The function of a method's file."""
    name = module.split(".")[-1]
    file = importlib.import_module(module)
    function = getattr(file, name, None)
    if not callable(function):
        raise ValueError(
            f"{file.__file__} has no function {name!r}, which makes the method; the "
            "name of a file with other code begins with _"
        )
    return function
