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
    in_order = sorted(_modules().items())
    return {name: _function(module) for name, module in in_order}


def method(name: str) -> Callable:
    """The method of this name.

    Raises:
      ValueError: it is unknown; the message lists the known ones.
    """
    return _function(registry.find("algorithm", _modules(), name))


def families() -> dict[str, str]:
    """The family of every method; "" for one that lies in no folder of a family."""
    family = {}
    for name, module in _modules().items():
        # pfljax.algorithms.FAMILY.NAME, or pfljax.algorithms.NAME
        folders = module.split(".")[2:-1]
        family[name] = ".".join(folders)
    return family


def _modules() -> dict[str, str]:
    """The module of every method, by the method's name; none is imported."""
    _extend_path()
    modules = {}
    top = pkgutil.iter_modules(__path__, f"{__name__}.")
    for _, module, is_family in top:
        inside = _in_family(module) if is_family else [module]
        for path in inside:
            name = path.split(".")[-1]
            if not name.startswith("_"):
                modules[name] = path
    return modules


def _extend_path() -> None:
    """Makes the folders of `PFLJAX_METHODS` folders of this package."""
    # Read at every call: tests and notebooks set it after the import.
    variable = os.environ.get("PFLJAX_METHODS", "")
    for folder in filter(None, variable.split(os.pathsep)):
        if not os.path.isdir(folder):
            raise ValueError(f"PFLJAX_METHODS has {folder!r}, which is no folder")
        if folder not in __path__:
            __path__.append(folder)


def _in_family(module: str) -> list[str]:
    """The modules in the folder of a family, found without importing it."""
    family = module.split(".")[-1]
    paths = [str(Path(path, family)) for path in __path__]
    return [m.name for m in pkgutil.iter_modules(paths, f"{module}.")]


def _function(module: str) -> Callable:
    """The function of a method's file."""
    name = module.split(".")[-1]
    try:
        file = importlib.import_module(module)
    except (ImportError, SyntaxError) as error:
        raise ValueError(
            f"the method {name!r} cannot be imported: {error}; mend its file, or take "
            "it out of the folders of PFLJAX_METHODS"
        ) from error
    function = getattr(file, name, None)
    if not callable(function):
        raise ValueError(
            f"{file.__file__} has no function {name!r}, which makes the method; the "
            "name of a file with other code begins with _"
        )
    return function
