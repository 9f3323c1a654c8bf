"""A cache of compiled programs.

Compiling a run takes seconds, and its programs take 20 to 40 MB. Those of the last few
settings are kept, so that a loop over settings does not fill the memory.
"""

import ctypes
import functools
import gc
from collections.abc import Callable
from typing import Any

import jax

SETTINGS = 8  # settings whose compiled programs are kept, for each kind of program
# Up to so many bytes of first states, quick compilation saves more time than the slower
# program costs.
FEW_BYTES = 2**27
UNOPTIMISED = {"xla_backend_optimization_level": 0}

_caches: list[Any] = []


class Same:
    """A value in the key of a cache, equal only to the identical value.

    Functions have no other equality, and those of two models may look the same.
    """

    def __init__(self, value: Any):
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value


def memoize(build: Callable) -> Any:
    """A decorator that keeps the last results of `build`, by its arguments."""

    @functools.wraps(build)
    def make_room(*key: Any) -> Any:
        held = cache.cache_info()
        if held.currsize == SETTINGS:
            # JAX's own caches keep 8 MB of each program that has left ours. They are
            # seldom cleared, as the programs that remain then compile again.
            if held.misses % SETTINGS == 0:
                jax.clear_caches()
            _give_back()
        return build(*key)

    cache = functools.lru_cache(maxsize=SETTINGS)(make_room)
    _caches.append(cache)
    return cache


def quickly_compiled(f: Callable, nbytes: int = 0, **options: Any) -> Any:
    """`jax.jit` for a function that seldom runs, such as the draw of first states.

    Random draws of `nbytes` take seconds to compile and milliseconds to run. On a CPU
    without LLVM's optimisation they compile in a fifth of the time, and run half as
    fast.
    """
    few = nbytes <= FEW_BYTES and jax.default_backend() == "cpu"
    return jax.jit(f, compiler_options=UNOPTIMISED if few else None, **options)


def forget_programs() -> None:
    """Frees all compiled programs; what runs next compiles them again."""
    for cache in _caches:
        cache.cache_clear()
    jax.clear_caches()
    _give_back()


def _give_back() -> None:
    """Returns the memory of forgotten programs, which are in cycles, to the system."""
    gc.collect()
    # glibc keeps what is freed between blocks in use, some 30 MB for each setting.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
