"""Clients that have not taken part yet are judged by the server's model."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from pfljax.core import tree
from pfljax.core.types import Algorithm, ClientData, Turn


class Kept(NamedTuple):
    """What a client keeps."""

    own: Any  # the method's own state
    met: Any  # bool[], whether it was ever trained


def newcomers_take_w(
    method: Algorithm,
    *,
    judged: Callable[[Turn, Any, ClientData], Any] | None = None,
    begun: Callable[[Turn], Any] = lambda turn: True,
    untrained: bool = False,
) -> Algorithm:
    """The method, judging a client by the server's model until it first takes part.

    A personal model that never saw the client's rows is no model of the client: so say
    the papers of this family of unseen clients. Until then both endpoints of its path
    are the server's as well.

    Args:
      method: its clients' state is the personal model, or holds it.
      judged: what is judged before, of (turn, server, data), if not `server_model`.
      begun: whether personal models train in this turn.
      untrained: judges every client by its personal model all the same, trained or not.
    """
    server_model, endpoints = method.server_model, method.endpoints
    assert server_model is not None
    before = judged or (lambda turn, server, data: server_model(server))

    def train(turn, message, kept, data):
        own, upload, metrics = method.train(turn, message, kept.own, data)
        return Kept(own, kept.met | begun(turn)), upload, metrics

    def personal(turn, server, kept, data):
        own = method.personal(turn, server, kept.own, data)
        return tree.where(kept.met, own, before(turn, server, data))

    def path(server, kept):
        assert endpoints is not None
        a, b = endpoints(server, kept.own)
        return a, tree.where(kept.met, b, a)

    def first(params, client_id, key):
        return Kept(method.init_client(params, client_id, key), jnp.bool_(untrained))

    return method._replace(
        init_client=first,
        message=lambda server, kept: method.message(server, kept.own),
        train=train,
        personal=personal,
        endpoints=endpoints and path,
    )
