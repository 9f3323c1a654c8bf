"""Parameters and running statistics of a module, as one nested dict and apart.

A statistic lies in its module, beside the module's parameters, under one more key:
`body/norm/scale`, `body/norm/batch_stats/mean`.
"""

from typing import Any, NamedTuple

from flax.traverse_util import flatten_dict, unflatten_dict

from pfljax.core.statistics import STATISTICS
from pfljax.core.types import Params


class State(NamedTuple):
    """What a module has, each with the module's own paths."""

    parameters: Params
    statistics: Params


def join(parameters: Params, statistics: Params) -> Params:
    """One nested dict of both; a module has the same path in each."""
    flat = dict(flatten_dict(parameters))
    for path, leaf in flatten_dict(statistics).items():
        *module, name = path
        # The key of its own tells a statistic from a parameter of the same name.
        flat[(*module, STATISTICS, name)] = leaf
    return unflatten_dict(flat)


def split(params: Params) -> State:
    """The state of which `join` made `params`."""
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
    """The path of a leaf as its module has it."""
    return tuple(key for key in path if key != STATISTICS)


def from_linen(variables: Any) -> Params:
    """The parameters of a task, of the variables that a Linen module's `init` makes."""
    # Flax leaves out what is empty: a model of no layers, or of no running statistics.
    parameters = variables.get("params", {})
    statistics = variables.get(STATISTICS, {})
    return join(parameters, statistics)
