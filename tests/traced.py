"""The equations of traced functions."""

from jax.extend.core import ClosedJaxpr, Jaxpr


def equations(jaxpr):
    """The equations of a traced function and of all that it calls."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            # The branches of a `cond` come as a tuple.
            for item in value if isinstance(value, tuple | list) else (value,):
                if isinstance(item, ClosedJaxpr):
                    yield from equations(item.jaxpr)
                elif isinstance(item, Jaxpr):
                    yield from equations(item)
