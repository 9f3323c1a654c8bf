"""Clients that have not taken part yet are judged by the server's model."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from pfljax import tree
from pfljax.types import Algorithm


class Kept(NamedTuple):
    """What a client keeps."""

    own: Any  # the method's own state
    met: Any  # bool[], whether the client ever took part


def newcomers_take_w(
    method: Algorithm, shared: Callable[[Any], Any] | None = None
) -> Algorithm:
    """The method, judging a client by the server's model until it first takes part.

    A personal model that never saw the client's rows is no model of the client: so say
    the papers of this family of unseen clients. `shared` is what is judged of a server
    where that is not the method's `server_model`.
    """
    shared, endpoints = shared or method.server_model, method.endpoints
    assert shared is not None

    def train(turn, message, kept, data):
        own, upload, metrics = method.train(turn, message, kept.own, data)
        return Kept(own, jnp.bool_(True)), upload, metrics

    def personal(turn, server, kept, data):
        own = method.personal(turn, server, kept.own, data)
        return tree.where(kept.met, own, shared(server))

    def first(params, client_id, key):
        return Kept(method.init_client(params, client_id, key), jnp.bool_(False))

    return method._replace(
        init_client=first,
        message=lambda server, kept: method.message(server, kept.own),
        train=train,
        personal=personal,
        endpoints=endpoints and (lambda server, kept: endpoints(server, kept.own)),
    )
