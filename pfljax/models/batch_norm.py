"""What batch normalisation within a module is told of its batch: mask and mode.

A user's module calls its layers with x alone, however deep they lie. Flax Linen lets
calls be intercepted; for NNX see `nnx_batch_norm`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from flax import linen as nn

from pfljax.core.types import Array
from pfljax.models.layers import BatchNorm


def mask_and_mode(mask: Array, training: bool) -> AbstractContextManager[Any]:
    """Within it, Linen's batch normalisation counts the rows of `mask` f32[B] alone.

    In training it takes the statistics of the batch, in evaluation the running ones,
    unless the module itself says which.
    """

    def with_mask(
        call: Callable[..., Any], args: Any, kwargs: Any, context: Any
    ) -> Any:
        layer = context.module
        # Flax intercepts `setup` and helper methods too, which take no rows.
        if context.method_name != "__call__":
            return call(*args, **kwargs)
        if isinstance(layer, BatchNorm):
            kwargs = {"mask": mask, **kwargs}
        if isinstance(layer, nn.BatchNorm):
            # What the module itself passes comes last, and wins.
            kwargs = {"mask": expand_mask(mask, args[0]), **kwargs}
            # A second positional argument would be `use_running_average`.
            if layer.use_running_average is None and len(args) == 1:
                kwargs = {"use_running_average": not training, **kwargs}
        return call(*args, **kwargs)

    return nn.intercept_methods(with_mask)


def expand_mask(mask: Array, x: Array) -> Array:
    """The mask of rows, bool, shaped to broadcast against x [B, ...].

    If no row counts, all do: the mean of nothing is NaN.

    Raises:
      ValueError: the first axis of x is not that of the rows.
    """
    if x.shape[0] != mask.shape[0]:
        raise ValueError(
            f"batch normalisation got x of shape {x.shape} in a batch of "
            f"{mask.shape[0]} rows; bring the axis of the rows to the front"
        )
    nobody = mask.sum() == 0
    rows = (mask > 0) | nobody
    ones = (1,) * (x.ndim - 1)
    return rows.reshape(-1, *ones)
