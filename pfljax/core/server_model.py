"""Methods whose server state is a record with a model and other fields."""

from collections.abc import Callable
from typing import Any

from pfljax.core.types import Algorithm, Params, Server

# The position of the server in the arguments of each function of a method.
POSITIONS = {
    "message": 1,
    "server_model": 0,
    "personal": 1,
    "newcomer": 1,
    "endpoints": 0,
    "quantities": 0,
}


def wrap_server(
    algorithm: Algorithm, model_of: Callable[[Server], Params]
) -> Algorithm:
    """The method, whose functions take `model_of(server)` in place of the server.

    The caller replaces its `init` and `aggregate`, which return the record.
    """

    functions = {
        name: map_argument(getattr(algorithm, name), position, model_of)
        for name, position in POSITIONS.items()
    }
    return algorithm._replace(**functions)


def map_argument(
    function: Callable | None, position: int, change: Callable[[Any], Any]
) -> Any:
    """The function of `change` of one positional argument; None for no function."""
    if function is None:
        return None

    def call(*arguments: Any, **more: Any) -> Any:
        before, after = arguments[:position], arguments[position + 1 :]
        return function(*before, change(arguments[position]), *after, **more)

    return call
