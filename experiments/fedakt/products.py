"""FLOPs of the matrix products and convolutions in a traced function.

XLA's own count of a compiled program includes the body of a loop only once, whatever
the loop's length, and leaves out operations that its passes turned into library calls.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

from pfljax.models import convolution


def product_flops(function: Callable[..., Any], *args: Any) -> int:
    """FLOPs of `function` at `args`, arrays or shapes; 2 for a multiply and an add.

    The body of a `while` counts once, that of a `scan` as often as it runs, and of the
    branches of a `cond` the costliest. Products with padding count as all others.
    """
    return _count(jax.make_jaxpr(function)(*args).jaxpr)


def _count(jaxpr: Jaxpr) -> int:
    return sum(map(_equation, jaxpr.eqns))


def _equation(equation: Any) -> int:
    name = equation.primitive.name
    params = equation.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        depth = math.prod(shape[axis] for axis in contracted)
        return 2 * equation.outvars[0].aval.size * depth
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval
        output_axis = params["dimension_numbers"].rhs_spec[0]
        outputs = kernel.shape[output_axis]
        # Every number put out is a product with the kernel of one output channel.
        return 2 * equation.outvars[0].aval.size * kernel.size // outputs
    if equation.primitive in convolution.PRIMITIVES:
        form = params["form"]
        images, *_ = equation.invars[0].aval.shape
        # The convolution and both of its gradients: each pixel that is put out is a
        # product with the whole kernel.
        return 2 * images * math.prod(form.slope) * math.prod(form.kernel)
    inner = [_count(jaxpr) for jaxpr in _inside(params)]
    # What runs depends on the data: the costliest branch is the safe account.
    if name == "cond":
        return max(inner)
    if name == "scan":
        return sum(inner) * params["length"]
    return sum(inner)


def _inside(params: dict[str, Any]) -> Iterator[Jaxpr]:
    """The functions that an equation calls."""
    for value in params.values():
        # The branches of a `cond` come as a tuple.
        items = value if isinstance(value, tuple | list) else (value,)
        for item in items:
            if isinstance(item, ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, Jaxpr):
                yield item
