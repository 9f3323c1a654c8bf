"""Gives batch normalisation within an NNX module the mask of its batch.

A user's module calls its layers with x alone; they are found in the module.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from flax import nnx

from pfljax.core.types import Array
from pfljax.models.batch_norm import expand_mask


@contextmanager
def mask_examples(model: nnx.Module, mask: Array) -> Iterator[None]:
    """Makes batch normalisation in the NNX `model` count examples with mask 1 only."""
    layers = [
        layer
        for _, layer in nnx.iter_modules(model)
        if isinstance(layer, nnx.BatchNorm)
    ]
    for layer in layers:
        # NNX would take an attribute for a part of the state.
        object.__setattr__(layer, "__class__", _masked_kind(type(layer)))
        vars(layer)["example_mask"] = mask
    yield
    for layer in layers:
        # The state of the model is read after the call, and the mask is no part of it.
        del vars(layer)["example_mask"]


# One class for each kind of layer, a user's own among them: JAX never forgets a class.
@cache
def _masked_kind(kind: type) -> type:
    """Makes the subclass of a batch normalisation that looks up its mask."""

    def call(layer: Any, x: Array, *args: Any, **kwargs: Any) -> Any:
        kwargs = {"mask": expand_mask(layer.example_mask, x), **kwargs}
        normalised = kind.__call__(layer, x, *args, **kwargs)
        # NNX gives the type of the statistics, f32, where the layer says none.
        return normalised.astype(layer.dtype or x.dtype)

    return type(f"Masked{kind.__name__}", (kind,), {"__call__": call})
