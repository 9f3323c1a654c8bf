"""A network of a body and a head, which every model is."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from flax import linen as nn

from pfljax.core.ranges import INT32, Range
from pfljax.core.types import Array

Classes = Annotated[int, Range(lambda count: count >= 1, "1 or more"), INT32]


Layer = Callable[..., Any]


class Network(nn.Module):
    """A body that makes features of x, and a head that makes logits of features."""

    body: nn.Module
    head: nn.Module
    # The number of tokens, if x are tokens from 0; or one for each column of x.
    vocab: int | tuple[int, ...] | None = None

    def __call__(self, x: Array) -> Array:
        """Computes logits [B, K] of normalised examples x [B, ...]."""
        return self.head(self.body(x))


def network(
    body: Sequence[Layer],
    num_classes: int,
    hidden: Sequence[int] = (),
    vocab: int | tuple[int, ...] | None = None,
) -> nn.Module:
    """Makes a network of these layers; its head has a ReLU layer for each `hidden`."""
    head: nn.Module = nn.Dense(num_classes)
    if hidden:
        head = nn.Sequential([*relu_layers(nn.Dense, hidden), head])
    return Network(body=nn.Sequential(body), head=head, vocab=vocab)


def relu_layers(dense: Layer, widths: Sequence[int]) -> list[Layer]:
    """Makes a dense layer and a ReLU for each width."""
    layers: list[Layer] = []
    for width in widths:
        layers += [dense(width), nn.relu]
    return layers
