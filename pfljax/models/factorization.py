"""Matrix factorization for ratings of items by users."""

import jax.numpy as jnp
from flax import linen as nn

from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne
from pfljax.core.types import Array
from pfljax.models.network import Classes, network


@component
def matrix_factorization(
    num_classes: Classes,
    *,
    users: AtLeastOne = 610,
    items: AtLeastOne = 9724,
    features: AtLeastOne = 16,
) -> nn.Module:
    """A weighted product of factors of user and item, for x = (user, item).

    The defaults are the numbers of MovieLens latest-small.

    It is the generalised matrix factorization of He et al., WWW 2017, eq. 9, with a
    bias of each user and item: https://arxiv.org/abs/1708.05031.
    """
    factors = Factors(users, items, features)
    return network([factors], num_classes, vocab=(users, items))


class Factors(nn.Module):
    """The factors of a user and an item, multiplied one by one, and their biases."""

    users: int
    items: int
    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Computes f32[B, features + 2] of numbers [B, 2] of a user and an item.

        A task casts the numbers to f32, which holds them exactly.

        Raises:
          ValueError: x is not [B, 2].
        """
        if x.shape[1:] != (2,):
            raise ValueError(
                f"x has shape {x.shape}, expected [B, 2], a user and an item; choose "
                "another model than matrix_factorization"
            )
        parts, biases = [], []
        for name, count, number in (
            ("user", self.users, x[:, 0]),
            ("item", self.items, x[:, 1]),
        ):
            number = number.astype(jnp.int32)
            parts.append(nn.Embed(count, self.features, name=name)(number))
            zeros = nn.initializers.zeros
            bias = nn.Embed(count, 1, name=f"{name}_bias", embedding_init=zeros)
            biases.append(bias(number))
        return jnp.concatenate([parts[0] * parts[1], *biases], 1)
