"""What every model is: a body and a head."""

from flax import linen as nn

from pfljax.core.types import Array


class Network(nn.Module):
    """A body that makes features of x, and a head that makes logits of features."""

    body: nn.Module
    head: nn.Module

    def __call__(self, x: Array) -> Array:
        """Logits [B, K] of normalised rows x [B, ...]."""
        return self.head(self.body(x))
