"""Methods whose running statistics are not averaged.

`keep(method)` keeps statistics with each client, and `drop(method)` with nobody.
`keep_of_proxy(method, proxy)` keeps those of the small model that clients of several
architectures share. The method's own functions still see whole models. Before a model
is sent, `unsent` takes its statistics out, and on arrival `fill` puts others in: the
client's own, or at the server the first statistics of the model.

    whole                               {"scale": 2.0, "batch_stats": {"mean": 10.0}}
    unsent(whole)                       {"scale": 2.0, "batch_stats": {"mean": ()}}
    fill(.., {"batch_stats/mean": 9})  {"scale": 2.0, "batch_stats": {"mean": 9}}

In place of a statistic a tree may have `()`, which is not sent and will be filled in,
or None, which belongs to another part of `tree.split`, such as FedPer's heads, and
stays. There are two kinds of names as well. A client's statistics have their names in
its model (`name_in_model`), whatever record contains the model in a message or an
upload. A server may be a record of two models, whose statistics can only be
distinguished by the whole path (`jax.tree_util.keystr`).

These functions take methods whose messages and uploads are parameters, or a part of
them, such as FedPer's bodies; `keep_of_proxy` also takes those that upload differences.
Other methods that send differences, or several models, such as SCAFFOLD and IFCA,
average their statistics.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from pfljax.core.statistics import by_kind, has_any, is_statistic
from pfljax.core.types import Algorithm, Task

Tree = Any
# In place of a statistic that is not sent: it has no leaf, and differs from the None of
# a leaf that belongs to another part of `tree.split`.
UNSENT = ()


class Client(NamedTuple):
    """The state of a client that keeps its own statistics."""

    state: Any  # the method's own
    statistics: dict[str, Any]  # by their names in the model


def keep(method: Algorithm) -> Algorithm:
    """The method, whose clients keep their own statistics, which are never sent.

    SiloBN: Andreux et al., 2020, https://arxiv.org/abs/2008.07424. Clients that have
    not trained yet, and the server, have the first statistics of the model.
    """
    return _keep(method, lambda params, key: by_name(params))


def keep_of_proxy(
    method: Algorithm, proxy: Task, differences: bool = False
) -> Algorithm:
    """The method, whose clients keep the statistics of the server's `proxy` model.

    They start as those of the server, which do not change. The published code of such
    methods sends parameters alone. For a proxy without statistics the method is
    returned as it is.

    Args:
      method: a method whose clients keep their own models, with all statistics.
      proxy: the task of the model in messages and uploads.
      differences: whether the upload is the change from the message.
    """
    if not has_any(proxy.groups):
        return method

    def began(params: Any, key: Any) -> dict[str, Any]:
        # Statistics do not depend on the number of clients.
        return by_name(method.init(params, 1, key))

    return _keep(method, began, differences)


def _keep(
    method: Algorithm,
    began: Callable[[Any, Any], dict[str, Any]],
    differences: bool = False,
) -> Algorithm:
    """The method, whose clients keep statistics, first those of began(params, key)."""
    endpoints = method.endpoints
    quantities = method.quantities
    evaluate = _personal_model(method)

    def init_client(params, client_id, key):
        state = method.init_client(params, client_id, key)
        return Client(state=state, statistics=began(params, key))

    def message(turn, server, client):
        return unsent(method.message(turn, server, client.state))

    def train(turn, message, client, data):
        whole = fill(message, client.statistics)
        state, upload, metrics = method.train(turn, whole, client.state, data)
        sent = by_name(upload)
        if differences:
            sent = {name: client.statistics[name] + sent[name] for name in sent}
        # A method may send a part of its model: the statistics of the rest stay.
        statistics = client.statistics | sent
        return Client(state=state, statistics=statistics), unsent(upload), metrics

    def personal(turn, server, client, data):
        return evaluate(turn, as_seen_by(client, server), client.state, data)

    def origin(message, client, upload):
        return unsent(method.origin(message, client.state, upload))

    def path(server, client):
        assert endpoints is not None
        return endpoints(as_seen_by(client, server), client.state)

    def measure(server, client):
        assert quantities is not None
        return quantities(as_seen_by(client, server), client.state)

    # The server does not need statistics: with `drop` it keeps the first ones.
    return drop(method)._replace(
        init_client=init_client,
        message=message,
        train=train,
        personal=personal,
        endpoints=path if endpoints else None,
        quantities=measure if quantities else None,
        origin=origin,
    )


def drop(method: Algorithm) -> Algorithm:
    """The method, whose server keeps the first statistics of the model."""

    def train(turn, message, client, data):
        client, upload, metrics = method.train(turn, message, client, data)
        return client, unsent(upload), metrics

    def aggregate(server, uploads, cohort):
        mean = method.aggregate(unsent(server), uploads, cohort)
        # A server may be a record of two models, distinguished by whole paths.
        began = by_name(server, jax.tree_util.keystr)
        return fill(mean, began, jax.tree_util.keystr)

    def origin(message, client, upload):
        return unsent(method.origin(message, client, upload))

    return method._replace(train=train, aggregate=aggregate, origin=origin)


def _personal_model(method: Algorithm) -> Callable[..., Any]:
    """The method's `personal`, or the server's model if it has none."""
    if method.personal is not None:
        return method.personal
    server_model = method.server_model
    assert server_model is not None
    return lambda turn, server, client, data: server_model(server)


def as_seen_by(client: Client, server: Tree) -> Tree:
    """The server with the statistics of this client."""
    return fill(unsent(server), client.statistics)


def unsent(a: Tree) -> Tree:
    """`a` without its statistics."""
    return by_kind(a, statistic=lambda leaf: UNSENT)


def name_in_model(path: Any) -> str:
    """The names on a leaf's path, without the fields of a record around the model.

    So a statistic has the same name in a message that is a record and in an upload that
    is a bare model.
    """
    keys = [str(key.key) for key in path if hasattr(key, "key")]
    return "/".join(keys)


def fill(
    a: Tree,
    statistics: dict[str, Any],
    name: Callable[[Any], str] = name_in_model,
) -> Tree:
    """`a` with statistics in place of `unsent` ones, by the names of `by_name`.

    Raises:
      KeyError: there is no statistic of a name.
    """

    def fill(path: Any, leaf: Any) -> Any:
        missing = is_statistic(path) and _is_unsent(leaf)
        return statistics[name(path)] if missing else leaf

    # `()` has no leaves: `is_leaf` makes it one.
    return jax.tree_util.tree_map_with_path(fill, a, is_leaf=_is_unsent)


def _is_unsent(leaf: Any) -> bool:
    return isinstance(leaf, tuple) and leaf == UNSENT


def by_name(a: Tree, name: Callable[[Any], str] = name_in_model) -> dict[str, Any]:
    """The statistics of `a`, by the `name` of their path."""
    leaves = jax.tree_util.tree_leaves_with_path(a)
    return {name(path): leaf for path, leaf in leaves if is_statistic(path)}
