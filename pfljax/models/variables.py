"""Parameters and running statistics of a module, as one nested dict and apart.

A statistic lies in its module, beside the module's parameters, under one more key:
`body/norm/scale`, `body/norm/batch_stats/mean`.
"""

from typing import Any, NamedTuple

from flax.traverse_util import flatten_dict, unflatten_dict

from pfljax.core.statistics import STATISTICS
from pfljax.core.types import Params


class State(NamedTuple):
    """The variables of a module, by the module's own paths."""

    parameters: Params
    statistics: Params


def join(parameters: Params, statistics: Params) -> Params:
    """Joins both in one nested dict; a module has the same path in each."""
    flat = dict(flatten_dict(parameters))
    for path, leaf in flatten_dict(statistics).items():
        *module, name = path
        # The key tells a statistic from a parameter of the same name.
        flat[(*module, STATISTICS, name)] = leaf
    return unflatten_dict(flat)


def split(params: Params) -> State:
    """Splits `params` into the state that `join` made them of."""
    parameters = {}
    statistics = {}
    for path, leaf in flatten_dict(params).items():
        leaves = statistics if STATISTICS in path else parameters
        leaves[without_key(path)] = leaf
    return State(
        parameters=unflatten_dict(parameters),
        statistics=unflatten_dict(statistics),
    )


def without_key(path: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the path of a leaf in its module."""
    return tuple(key for key in path if key != STATISTICS)


def from_linen(variables: Any) -> Params:
    """Makes the parameters of a task from the variables of a Linen module."""
    # Flax leaves out what is empty: a model of no layers, or of no running statistics.
    parameters = variables.get("params", {})
    statistics = variables.get(STATISTICS, {})
    return join(parameters, statistics)
