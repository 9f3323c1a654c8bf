"""Compiled programs that stay for the next call, and how to free them.

Compiling costs seconds, and a compiled run 20 to 40 MB: those of the last few settings
stay, so that a loop over settings in one process does not fill the memory.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax

SETTINGS = 8  # whose programs stay, for each kind of program

_caches: list[Any] = []


def kept(build: Callable) -> Any:
    """Decorates `build`, of hashable arguments: remembers its last results."""
    cache = functools.lru_cache(maxsize=SETTINGS)(build)
    _caches.append(cache)
    return cache


def forget_programs() -> None:
    """Frees all compiled programs; what runs next compiles them again."""
    for cache in _caches:
        cache.cache_clear()
    jax.clear_caches()
