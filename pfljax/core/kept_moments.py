"""Clients that keep the state of their local optimizer between rounds.

Momentum, or the moments of Adam, are then a part of the client's state, as in a real
deployment in which a device keeps them. They are never sent. A method supports this if
it trains one model by one `fit`, whose metrics it returns.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from pfljax.core.optimizers import local_optimizer
from pfljax.core.server_model import wrap_client
from pfljax.core.training import MOMENTS
from pfljax.core.tree import paths
from pfljax.core.types import Algorithm, Local


class Client(NamedTuple):
    """A client's state, and that of its optimizer."""

    state: Any  # of the method
    moments: Any


def keep(build: Callable[[Local], Algorithm], local: Local) -> Algorithm:
    """The method that `build` makes, whose clients keep their optimizer's state.

    Its `train` raises a ValueError, when it is traced, if it does not train one model.
    """
    method = build(local)

    def init_client(params, client_id, key):
        moments = local_optimizer(local, jnp.int32(0)).init(params)
        return Client(method.init_client(params, client_id, key), moments)

    def train(turn, message, client, data):
        fits = []

        def start(fresh):
            fits.append(fresh)
            _require(_shapes(fresh) == _shapes(client.moments))
            return client.moments

        method = build(local._replace(start=start))
        trained = method.train(turn, message, client.state, data)
        state, upload, metrics = trained
        _require(method.then is None and len(fits) == 1 and MOMENTS in metrics)
        others = {name: metrics[name] for name in metrics if name != MOMENTS}
        return Client(state, metrics[MOMENTS]), upload, others

    wrapped = wrap_client(method, lambda client: client.state)
    return wrapped._replace(init_client=init_client, train=train)


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError(
            "keep_optimizer is set, but the method does not train one model by one "
            "optimizer in a round; leave it out, or choose another method, such as "
            "fedavg, fedprox or local"
        )


def _shapes(moments: Any) -> dict[str, Any]:
    return {name: (leaf.shape, leaf.dtype) for name, leaf in paths(moments).items()}
