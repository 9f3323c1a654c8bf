"""Factories that differ by the numbers of a table alone: how each gets its name."""

from collections.abc import Callable

from flax import linen as nn

from pfljax.registry import component

Factory = Callable[..., nn.Module]


def named(factory: Factory, name: str, docstring: str) -> Factory:
    """The factory under this name, with this docstring; it checks its arguments."""
    factory.__name__ = name
    factory.__qualname__ = name
    factory.__doc__ = docstring
    return component(factory)
