"""A small transformer of tokens, or of images by patches.

Vaswani et al., NeurIPS 2017, https://arxiv.org/abs/1706.03762, with the normalisation
before each branch: Xiong et al., ICML 2020, https://arxiv.org/abs/2002.04745. Patches:
Dosovitskiy et al., ICLR 2021, https://arxiv.org/abs/2010.11929, with the mean over
patches in place of a class token.
"""

from flax import linen as nn

from pfljax.core import requirements
from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne
from pfljax.core.types import Array
from pfljax.models.convolution import conv_layer
from pfljax.models.layers import add_channel
from pfljax.models.network import Classes, Layer, network
from pfljax.models.recurrent import Embedding, all_states

EXPANSION = 4  # hidden units of a block's dense layers, for each of its features


@component
def transformer(
    num_classes: Classes,
    *,
    vocab: AtLeastOne = 80,
    features: AtLeastOne = 64,
    heads: AtLeastOne = 4,
    layers: AtLeastOne = 2,
    causal: bool = True,
    each: bool = False,
    patch: AtLeastOne | None = None,
) -> nn.Module:
    """Pre-norm transformer of tokens i32[T]: 115,536 parameters with 80 characters.

    It predicts one target of the sequence, or with `each` one for each token. With
    `causal` a position sees none after it, and the target of the sequence is predicted
    at its last position, else by the mean over positions. With a `patch` it takes
    images, whose positions are squares of so many pixels a side.
    """
    expected = f"a divisor of the {features} features"
    requirements.require("heads", heads, features % heads == 0, expected)
    body: list[Layer] = [Embedding(vocab, features), all_states]
    if patch is not None:
        pixels = conv_layer("auto", patch, strides=patch, padding="VALID")
        body = [add_channel, pixels(features), join_rows]
    body.append(Positions())
    body += [Block(heads, causal) for _ in range(layers)]
    body.append(nn.LayerNorm())
    if not each:
        body.append(last_position if causal else mean_position)
    return network(body, num_classes, vocab=vocab if patch is None else None)


class Positions(nn.Module):
    """A vector for each position, drawn from N(0, 1) as those of tokens."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Adds them to vectors [B, T, d]."""
        init = nn.initializers.normal(1.0)
        return x + self.param("positions", init, x.shape[1:])


class Block(nn.Module):
    """Self-attention and a perceptron of each position, both beside the identity."""

    heads: int
    causal: bool

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps vectors [B, T, d] to [B, T, d]."""
        features = x.shape[-1]
        mask = nn.make_causal_mask(x[..., 0]) if self.causal else None
        attend = nn.MultiHeadDotProductAttention(self.heads, name="attention")
        x = x + attend(nn.LayerNorm(name="norm_attention")(x), mask=mask)
        hidden = nn.Dense(EXPANSION * features, name="expand")
        outputs = nn.Dense(features, name="contract")
        return x + outputs(nn.gelu(hidden(nn.LayerNorm(name="norm_dense")(x))))


def join_rows(x: Array) -> Array:
    """Reshapes images [B, H, W, d] to sequences [B, H W, d]."""
    return x.reshape(len(x), -1, x.shape[-1])


def last_position(x: Array) -> Array:
    """Returns the vectors [B, d] at the last position of [B, T, d]."""
    return x[:, -1]


def mean_position(x: Array) -> Array:
    """Averages vectors [B, T, d] over positions, [B, d]."""
    return x.mean(1)
