"""Factories of named models, which change the options of another factory."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from flax import linen as nn

from pfljax.core.factories import component

Factory = Callable[..., nn.Module]


def preset(
    factory: Factory,
    name: str,
    docstring: str,
    defaults: Mapping[str, Any] | None = None,
    **fixed: Any,
) -> Factory:
    """Fixes some options of a factory, and changes the defaults of others."""
    defaults = defaults or {}
    signature = inspect.signature(factory, eval_str=True)
    parameters = [
        each.replace(default=defaults.get(each.name, each.default))
        for each in signature.parameters.values()
        if each.name not in fixed
    ]

    def build(num_classes: int, **options: Any) -> nn.Module:
        return factory(num_classes, **{**defaults, **options, **fixed})

    build.__name__ = name
    build.__qualname__ = name
    build.__doc__ = docstring
    build.__signature__ = signature.replace(parameters=parameters)  # type: ignore
    return component(build)
