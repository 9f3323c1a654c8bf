"""What a method declares of running statistics where it does not average them.

`keep(method)` leaves statistics with each client, `drop(method)` with nobody, and
`keep_of_proxy(method, proxy)` those of the small model that clients of several
architectures share with each client. The method's own functions still see whole models.
Before a model travels, `unsent` takes its statistics out, and where it arrives `fill`
puts others in: the client's own, or in the server those that the model began with.

    whole                               {"scale": 2.0, "batch_stats": {"mean": 10.0}}
    unsent(whole)                       {"scale": 2.0, "batch_stats": {"mean": ()}}
    fill(.., {"batch_stats/mean": 9})  {"scale": 2.0, "batch_stats": {"mean": 9}}

Two things may stand in a tree where a statistic was: `()`, which is not sent and will
be filled in, and None, which `tree.split` dealt to another part, as FedPer deals heads,
and which stays. Names are of two kinds as well. A client's statistics have the names in
its model (`name_in_model`), whatever record is around it in a message or an upload. A
server may be a record of two models, whose statistics only the whole path
(`jax.tree_util.keystr`) tells apart.

They take a method whose messages and uploads are parameters, or a part of them, as
FedPer's bodies are; `keep_of_proxy` also one that uploads differences. Who else sends
differences, or several models, as SCAFFOLD and IFCA do, averages statistics.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from pfljax.core.statistics import by_kind, has_any, is_statistic
from pfljax.core.types import Algorithm, Task

Tree = Any
# In the place of a statistic that is not sent: no leaf, and other than the None of a
# leaf that `tree.split` dealt to another part.
UNSENT = ()


class Client(NamedTuple):
    """The state of a client that keeps its own statistics."""

    state: Any  # the method's own
    statistics: dict[str, Any]  # by their names in the model


def keep(method: Algorithm) -> Algorithm:
    """The method, whose clients keep their own statistics, which are never sent.

    SiloBN: Andreux et al., 2020, https://arxiv.org/abs/2008.07424. A client that has
    not trained yet has the statistics that the model began with; so has the server.
    """
    return _keep(method, lambda params, key: by_name(params))


def keep_of_proxy(
    method: Algorithm, proxy: Task, differences: bool = False
) -> Algorithm:
    """The method, whose clients keep the statistics of the `proxy` that its server has.

    They begin as the server's do, which stay so. The published code of such methods
    sends parameters alone. A proxy without statistics leaves the method as it is.

    Args:
      method: its clients keep their own model, whose statistics are theirs anyway.
      proxy: the task of the model that message and upload are of.
      differences: the upload is what has changed of the message.
    """
    if not has_any(proxy.groups):
        return method

    def began(params: Any, key: Any) -> dict[str, Any]:
        # The number of clients makes no statistic another.
        return by_name(method.init(params, 1, key))

    return _keep(method, began, differences)


def _keep(
    method: Algorithm,
    began: Callable[[Any, Any], dict[str, Any]],
    differences: bool = False,
) -> Algorithm:
    """The method, whose clients keep statistics; `began` of (params, key) are first."""
    endpoints = method.endpoints
    quantities = method.quantities
    judged_by = _judged_by(method)

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
        return judged_by(turn, as_seen_by(client, server), client.state, data)

    def origin(message, client, upload):
        return unsent(method.origin(message, client.state, upload))

    def path(server, client):
        assert endpoints is not None
        return endpoints(as_seen_by(client, server), client.state)

    def measure(server, client):
        assert quantities is not None
        return quantities(as_seen_by(client, server), client.state)

    # The server of `keep` has no use for statistics: `drop` leaves it the first.
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
    """The method, whose server keeps the statistics that the model began with."""

    def train(turn, message, client, data):
        client, upload, metrics = method.train(turn, message, client, data)
        return client, unsent(upload), metrics

    def aggregate(server, uploads, cohort):
        mean = method.aggregate(unsent(server), uploads, cohort)
        # A server may be a record of two models: whole paths tell theirs apart.
        began = by_name(server, jax.tree_util.keystr)
        return fill(mean, began, jax.tree_util.keystr)

    def origin(message, client, upload):
        return unsent(method.origin(message, client, upload))

    return method._replace(train=train, aggregate=aggregate, origin=origin)


def _judged_by(method: Algorithm) -> Callable[..., Any]:
    """The method's `personal`, or the server's model where it has none."""
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

    A message may be a record and the upload a bare model: in both, a statistic has one
    name.
    """
    keys = [str(key.key) for key in path if hasattr(key, "key")]
    return "/".join(keys)


def fill(
    a: Tree,
    statistics: dict[str, Any],
    name: Callable[[Any], str] = name_in_model,
) -> Tree:
    """`a` with statistics where `unsent` took them; their names are those of `by_name`.

    Raises:
      KeyError: one of them has no statistic of its name.
    """

    def fill(path: Any, leaf: Any) -> Any:
        missing = is_statistic(path) and _is_unsent(leaf)
        return statistics[name(path)] if missing else leaf

    # `()` has no leaves: without `is_leaf` nothing would be visited there.
    return jax.tree_util.tree_map_with_path(fill, a, is_leaf=_is_unsent)


def _is_unsent(leaf: Any) -> bool:
    return isinstance(leaf, tuple) and leaf == UNSENT


def by_name(a: Tree, name: Callable[[Any], str] = name_in_model) -> dict[str, Any]:
    """The statistics of `a`, by the `name` of their path."""
    leaves = jax.tree_util.tree_leaves_with_path(a)
    return {name(path): leaf for path, leaf in leaves if is_statistic(path)}
