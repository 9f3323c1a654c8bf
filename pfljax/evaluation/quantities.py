"""What a method tells of each client beside its metrics, such as a confidence.

A method names them by `Algorithm.quantities`; a run keeps them at every evaluation.
"""

from collections.abc import Callable

import jax

from pfljax.core.types import Array
from pfljax.engine import Setting, mesh

PREFIX = "client/"  # of their names among the arrays of a run


def quantities_of_clients(
    setting: Setting,
    width: int | None = None,
) -> Callable[..., dict[str, Array]] | None:
    """A jitted function (state, clients, ids) -> f32[n] by name.

    `clients` holds the states of clients `ids` i32[n], of which `width` are looked at
    at once; None for all. None of a method that names no quantities.
    """
    quantities = setting.algorithm.quantities
    if quantities is None:
        return None

    def locally(server, _, split):
        ids, _ = split

        def one(of_client):
            _, client = of_client
            return quantities(server, client)

        # In their order: all take equally long, and sorting would copy the states.
        return jax.lax.map(one, split, batch_size=width or len(ids))

    def run(state, clients, ids):
        split = ids, clients
        return mesh.over_rows(setting.mesh, locally, state.server, (), split, len(ids))

    return jax.jit(run)
