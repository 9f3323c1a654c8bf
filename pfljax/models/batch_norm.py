"""Gives the layers within a module the mask and the mode of its batch.

A user's module calls its layers with x alone, however deep they lie. Flax Linen lets
calls be intercepted; for NNX see `nnx_batch_norm`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from flax import linen as nn

from pfljax.core import tree
from pfljax.core.types import Array
from pfljax.models.layers import BatchNorm


def mask_and_mode(mask: Array, training: bool) -> AbstractContextManager[Any]:
    """Makes Linen's batch normalisation count examples with mask 1 only, f32[B].

    In training it takes the statistics of the batch, in evaluation the running ones,
    and dropout is on in training alone, unless the module itself chooses.
    """

    def with_mask(
        call: Callable[..., Any], args: Any, kwargs: Any, context: Any
    ) -> Any:
        layer = context.module
        # Flax intercepts `setup` and other methods too, which take no examples.
        if context.method_name != "__call__":
            return call(*args, **kwargs)
        if isinstance(layer, BatchNorm):
            kwargs = {"mask": mask, **kwargs}
        is_open = isinstance(layer, nn.Dropout) and layer.deterministic is None
        if is_open and len(args) == 1:
            kwargs = {"deterministic": not training, **kwargs}
        if isinstance(layer, nn.BatchNorm):
            # What the module itself passes comes last, and wins.
            kwargs = {"mask": expand_mask(mask, args[0]), **kwargs}
            # A second positional argument would be `use_running_average`.
            if layer.use_running_average is None and len(args) == 1:
                kwargs = {"use_running_average": not training, **kwargs}
        return call(*args, **kwargs)

    return nn.intercept_methods(with_mask)


def skip_stateless() -> AbstractContextManager[Any]:
    """Leaves out the layers that take the statistics of the batch in every mode."""

    def skip(call: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
        is_one = isinstance(context.module, BatchNorm)
        if is_one and context.method_name == "__call__":
            return args[0]
        return call(*args, **kwargs)

    return nn.intercept_methods(skip)


def expand_mask(mask: Array, x: Array) -> Array:
    """Shapes the mask f32[B] to bool that broadcasts against x [B, ...].

    If no example counts, all do, because the mean of nothing is NaN.

    Raises:
      ValueError: the first axis of x is not the batch axis.
    """
    if x.shape[0] != mask.shape[0]:
        raise ValueError(
            f"batch normalisation got x of shape {x.shape} in a batch of "
            f"{mask.shape[0]} examples; bring the batch axis to the front"
        )
    is_empty = mask.sum() == 0
    counts = (mask > 0) | is_empty
    return tree.column(counts, x)
