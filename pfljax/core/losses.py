"""Penalties that a method adds to the data loss, for `fit`."""

from collections.abc import Callable
from typing import Any

from pfljax.core import tree
from pfljax.core.types import Array, Params


def proximal(
    anchor: Params, mu: Any, form: str = "squared"
) -> Callable[[Params], Array]:
    """params -> mu times their `distance` to `anchor`, which stays fixed."""
    return lambda params: mu * distance(params, anchor, form)


def distance(params: Params, anchor: Params, form: str = "squared") -> Array:
    """A proximal term, f32[].

    "squared" is 1/2 ||p - anchor||^2 (Li et al., FedProx, eq. 2). "norm" is the sum
    over tensors of ||p - anchor||, as in SuPerFed's code (which leaves out biases for
    FedProx, Ditto and pFedMe; its models have none but those of batch normalisation).
    """
    if form not in ("squared", "norm"):
        raise ValueError(f"prox is {form!r}; known: 'squared', 'norm'")
    shift = tree.sub(params, anchor)
    return tree.square_norm(shift) / 2 if form == "squared" else tree.norms(shift)
