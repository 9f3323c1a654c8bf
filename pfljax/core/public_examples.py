"""The public examples at the server, for methods that learn from them."""

import jax
import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.types import Array, ClientData, Key


def require_public(method: str, num_public: int) -> None:
    """Raises a ValueError if the server has no examples."""
    if num_public == 0:
        raise ValueError(
            f"{method} needs examples at the server, and there are none; "
            "give a share of the data set to the server, such as public=0.1"
        )


def draw_order(key: Key, num_public: int) -> Array:
    """The numbers of all public examples in a random order, i32[num_public]."""
    order = jax.random.permutation(derive(key, "rows of the server"), num_public)
    return order.astype(jnp.int32)


def stratify(
    order: Array,
    public: ClientData,
    count: int,
    classes: int,
) -> Array:
    """The numbers of `count` examples, the first of each class in `order`, i32[count].

    Each class has its share of them, up to one example.
    """
    labels = tree.take(public.examples.y, public.offset + order)
    member = jax.nn.one_hot(labels, classes)
    rank = jnp.sum(jnp.cumsum(member, 0) * member, 1)
    # The share of the class up to the middle of each example: below any bound, all
    # classes have the same share of their examples.
    share = (rank - 0.5) / jnp.sum(member, 0)[labels]
    return order[jnp.argsort(share, stable=True)[:count]]
