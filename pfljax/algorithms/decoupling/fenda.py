"""FENDA-FL: clients keep a body of their own beside the shared one, under one head.

Tavakoli et al., 2023, https://arxiv.org/abs/2309.16825.

    Server   g, the shared body      Client  l_k, its own body; h_k, a head of both
    Message  g                       Upload  g_k, the shared body after local training

The logits are h_k([l_k(x), g(x)]). All three are trained jointly, and
g <- sum_k n_k g_k / sum_k n_k. Client k is evaluated with the newest g and its own l_k
and h_k, which are as they were drawn before it first takes part.

Here h_k is the sum of two heads of the model, one on each body. For a dense layer this
is the head on both features together, with two biases that add up.
"""

from typing import Any, NamedTuple

from pfljax.algorithms.decoupling.fedper import fedper
from pfljax.core import tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.losses import data_loss, logits_of_both
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task


class Client(NamedTuple):
    """What a client keeps."""

    own: Params  # the model of its own body
    head: Any  # the head on the shared body


@component
def fenda(task: Task, local: Local) -> Algorithm:
    """Builds FENDA-FL, which is FedPer with a second body and its head."""

    def logits(pair, batch, key=None):
        own, shared = pair
        return logits_of_both(task, own, shared, batch, key).sum(0)

    def loss(pair, batch, key):
        return data_loss(task, logits(pair, batch, key), batch)

    def train(turn, body, client, data):
        pair, metrics = fit(loss, join(body, client), data, turn, local)
        body, client = divide(task, pair)
        return client, body, metrics

    def init_client(params, client_id, key):
        # Equal bodies would stay equal.
        own = task.init(derive(key, "own body"))
        return divide(task, (own, params))[1]

    return fedper(task, local)._replace(
        init_client=init_client,
        train=train,
        work=lambda steps, size, is_first: 2 * steps,
        personal=lambda turn, body, client, data: join(body, client),
        predict=logits,
    )


def join(body, client):
    """The own and the shared model of a client."""
    return client.own, tree.merge(body, client.head)


def divide(task, pair):
    """(the shared body, what the client keeps) of both models."""
    own, shared = pair
    body, head = tree.split(shared, tree.matches(task.groups, "body"))
    return body, Client(own=own, head=head)
