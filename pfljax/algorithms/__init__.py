"""The methods: a folder a family, a file a method; file, function and key are one word.

A family is what a client keeps. Files with other code have names that begin with _.
One's own method is "path/to/file.py:function" (`pfljax.core.own`).
"""

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

from pfljax.core import factories, requirements
from pfljax.core.components import is_own


def methods() -> dict[str, Callable]:
    """Every method of pfljax by its name."""
    return {name: method(name) for name in families()}


def method(name: str) -> Callable:
    """The method of this name, of pfljax or one's own.

    Raises:
      ValueError: it is unknown (the message lists the known ones), or one's own file or
        function is missing, broken or no method.
    """
    if is_own(name):
        return factories.find("algorithm", {}, name)
    family = requirements.find("algorithm", families(), name)
    module = ".".join(filter(None, [__name__, family, name]))
    return getattr(importlib.import_module(module), name)


@cache
def families() -> dict[str, str]:
    """The family of every method, in order; "" for one that lies in no folder."""
    found = {}
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        *family, name = module.name.split(".")[2:]
        if not module.ispkg and not name.startswith("_"):
            found[name] = ".".join(family)
    return dict(sorted(found.items()))
