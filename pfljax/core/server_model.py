"""Methods whose server's or client's state is a record with other fields as well."""

from collections.abc import Callable
from typing import Any

from pfljax.core.types import Algorithm, Client, Params, Server

# The position of the server in the arguments of each function of a method.
SERVER = {
    "message": 1,
    "server_model": 0,
    "personal": 1,
    "newcomer": 1,
    "endpoints": 0,
    "quantities": 0,
}

# That of the client, except for `train`.
CLIENT = {"message": 2, "personal": 2, "endpoints": 1, "quantities": 1, "origin": 1}


def wrap_server(
    algorithm: Algorithm, model_of: Callable[[Server], Params]
) -> Algorithm:
    """The method, whose functions take `model_of(server)` in place of the server.

    The caller replaces its `init` and `aggregate`, which return the record.
    """
    return _wrap(algorithm, SERVER, model_of)


def wrap_client(
    algorithm: Algorithm, state_of: Callable[[Client], Client]
) -> Algorithm:
    """The method, whose functions take `state_of(client)` in place of the client.

    The caller replaces its `init_client` and `train`, which return the record.
    """
    return _wrap(algorithm, CLIENT, state_of)


def _wrap(
    algorithm: Algorithm, positions: dict[str, int], change: Callable[[Any], Any]
) -> Algorithm:
    functions = {
        name: map_argument(getattr(algorithm, name), position, change)
        for name, position in positions.items()
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
