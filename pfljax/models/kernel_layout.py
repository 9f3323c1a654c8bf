"""Which parameters have their outputs along the first axis, and not along the last."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from flax import linen as nn


def outputs_first(network: nn.Module) -> set[str]:
    """Paths, 'body/layers_0/kernel' style, of the parameters stored [out, ...].

    A layer names them in `OUTPUTS_FIRST`. Layers are found where they are fields of a
    module, as in `nn.Sequential`, not where its `setup` or `__call__` makes them.

    Raises:
      ValueError: the network is no Linen module.
    """
    if not isinstance(network, nn.Module):
        raise ValueError(
            f"network is {type(network).__name__}, expected an instance of "
            "flax.linen.Module, such as models.model makes"
        )
    return {"/".join(path) for path in _walk(network, ())}


def _walk(module: nn.Module, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name in getattr(module, "OUTPUTS_FIRST", ()):
        yield (*path, name)
    for name, child in _children(module):
        yield from _walk(child, (*path, name))


def _children(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules in the fields of a module, by the names that Flax gives them."""
    for field in dataclasses.fields(module):
        # Every Linen module has its parent as a field: upwards the walk has no end.
        if field.name == "parent":
            continue
        value: Any = getattr(module, field.name, None)
        if isinstance(value, nn.Module):
            yield field.name, value
        if isinstance(value, list | tuple):
            for i, element in enumerate(value):
                if isinstance(element, nn.Module):
                    yield f"{field.name}_{i}", element
