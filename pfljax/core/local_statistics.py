"""What a method declares of running statistics where it does not average them.

`dropped` and `kept` change a method whose messages and uploads are parameters, or a
part of them, as FedPer's bodies are. Who sends differences or several models, as
SCAFFOLD and IFCA do, averages statistics.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from pfljax.core.statistics import is_statistic
from pfljax.core.types import Algorithm

Tree = Any
# In the place of a statistic that is not sent: no leaf, and other than the None of a
# leaf that `tree.split` dealt to another part.
UNSENT = ()


class Client(NamedTuple):
    """The state of a client that keeps its own statistics."""

    state: Any  # the method's own
    statistics: dict[str, Any]  # by their names in the model


def dropped(method: Algorithm) -> Algorithm:
    """The method, whose server keeps the statistics that the model began with."""

    def train(turn, message, client, data):
        client, upload, metrics = method.train(turn, message, client, data)
        return client, unsent(upload), metrics

    def aggregate(server, uploads, cohort):
        mean = method.aggregate(unsent(server), uploads, cohort)
        began = by_name(server, jax.tree_util.keystr)
        return filled(mean, began, jax.tree_util.keystr)

    return method._replace(train=train, aggregate=aggregate)


def kept(method: Algorithm) -> Algorithm:
    """The method, whose clients keep their own statistics, which are never sent.

    SiloBN: Andreux et al., 2020, https://arxiv.org/abs/2008.07424. A client that has
    not trained yet has the statistics that the model began with; so has the server.
    """
    endpoints = method.endpoints

    def init_client(params, client_id, key):
        state = method.init_client(params, client_id, key)
        return Client(state=state, statistics=by_name(params))

    def message(turn, server, client):
        return unsent(method.message(turn, server, client.state))

    def train(turn, message, client, data):
        whole = filled(message, client.statistics)
        state, upload, metrics = method.train(turn, whole, client.state, data)
        # A method may send a part of its model: the statistics of the rest stay.
        statistics = client.statistics | by_name(upload)
        return Client(state=state, statistics=statistics), unsent(upload), metrics

    def as_seen_by(client, server):
        return filled(unsent(server), client.statistics)

    def personal(turn, server, client, data):
        server = as_seen_by(client, server)
        if method.personal is None:
            assert method.server_model is not None
            return method.server_model(server)
        return method.personal(turn, server, client.state, data)

    def path(server, client):
        assert endpoints is not None
        return endpoints(as_seen_by(client, server), client.state)

    # The server of `kept` has no use for statistics: `dropped` leaves it the first.
    return dropped(method)._replace(
        init_client=init_client,
        message=message,
        train=train,
        personal=personal,
        endpoints=path if endpoints else None,
    )


def unsent(a: Tree) -> Tree:
    """`a` without its statistics."""

    def parameter(path: Any, leaf: Any) -> Any:
        return UNSENT if is_statistic(path) else leaf

    return jax.tree_util.tree_map_with_path(parameter, a)


def name_in_model(path: Any) -> str:
    """The names on a leaf's path, without the fields of a record around the model."""
    keys = [str(key.key) for key in path if hasattr(key, "key")]
    return "/".join(keys)


def by_name(a: Tree, name: Callable[[Any], str] = name_in_model) -> dict[str, Any]:
    """The statistics of `a`."""
    leaves = jax.tree_util.tree_leaves_with_path(a)
    return {name(path): leaf for path, leaf in leaves if is_statistic(path)}


def filled(
    a: Tree,
    statistics: dict[str, Any],
    name: Callable[[Any], str] = name_in_model,
) -> Tree:
    """`a` with statistics where `unsent` took them."""

    def fill(path: Any, leaf: Any) -> Any:
        missing = is_statistic(path) and _is_unsent(leaf)
        return statistics[name(path)] if missing else leaf

    # `()` has no leaves: without `is_leaf` nothing would be visited there.
    return jax.tree_util.tree_map_with_path(fill, a, is_leaf=_is_unsent)


def _is_unsent(leaf: Any) -> bool:
    return isinstance(leaf, tuple) and leaf == UNSENT
