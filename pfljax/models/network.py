"""What every model is: a body and a head."""

from typing import Annotated

from flax import linen as nn

from pfljax.core.types import Array
from pfljax.registry import INT32, Range

Classes = Annotated[int, Range(lambda count: count >= 2, "2 or more"), INT32]


class Network(nn.Module):
    """A body that makes features of x, and a head that makes logits of features."""

    body: nn.Module
    head: nn.Module

    def __call__(self, x: Array) -> Array:
        """Logits [B, K] of normalised rows x [B, ...]."""
        return self.head(self.body(x))
