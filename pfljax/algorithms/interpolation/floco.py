"""Floco. Grinwald, Wiesner, Nakajima, NeurIPS 2024, https://arxiv.org/abs/2312.02827

    Server   a simplex: W_1 .. W_M, the head's weights, all else once; g_k and beta_k of
             every client k: what it last changed of W, and its point of the simplex
    Client   beta_k as last sent; of Floco+ also a simplex of its own
    Message  the simplex, beta_k       Upload  the simplex, trained
A model has the weights  sum_m alpha_m W_m.  Each step draws alpha: in the first `tau`
rounds anywhere on the simplex, then at most `radius` from beta_k, in L1. The server
takes means by rows. After round `tau` it finds all beta_k, which then are fixed: the
first M principal components of the g_k, scaled so that their projections on the simplex
have the least Riesz energy. Client k is judged at beta_k; the centre, alpha_m = 1 / M, is
the server's model and that of who never took part. The path of a client leads from
there to beta_k. Floco+ also trains a simplex of the client's own with the penalty
lam / 2 ||v - w||^2, of which client k is judged at beta_k.

Differs from the paper: no extra pass in which all clients train. g_k is of the last
round before `tau` in which k took part; who took part in none stays at the centre. In
published code a point may leave the simplex; here it does not. The own simplex begins
at the first one that is sent.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import affinity, aggregation, simplex, tree
from pfljax.core.keys import derive
from pfljax.core.losses import proximal
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import AtLeastOne, NotNegative, checked


class Server(NamedTuple):
    """The simplex, and what is known of clients."""

    w: Any
    changes: affinity.Models  # leaves [C, M, ...]
    beta: Any  # f32[C, M]


class Client(NamedTuple):
    """What a client keeps; v is () without Floco+."""

    v: Any
    beta: Any  # f32[M]
    begun: Any  # bool[], whether v was ever trained


class Message(NamedTuple):
    """What a client is sent."""

    w: Any
    beta: Any  # f32[M]


@checked
def floco(
    task: Task,
    local: Local,
    *,
    vertices: AtLeastOne = 10,
    tau: AtLeastOne = 50,
    radius: NotNegative = 0.1,
    lam: NotNegative | None = None,
    num_clients: AtLeastOne | None = None,
) -> Algorithm:
    """Builds Floco, or Floco+ if there is a `lam`; of one vertex Floco is FedAvg.

    `lam` = 0 is local training of a simplex; a large one ties it to the server's.

    Raises:
      ValueError: there are more vertices than clients, whose components they are.
    """
    if num_clients is not None and vertices > num_clients:
        raise ValueError(
            f"floco: vertices is {vertices}, but the federation has {num_clients} "
            f"clients; choose vertices <= {num_clients}"
        )
    centre = simplex.centre(vertices)
    chosen = simplex.in_simplex(task)

    def init(params, num_clients, key):
        w = simplex.first(task, params, vertices, key)
        inside, _ = tree.split(w, chosen)
        changes = affinity.first_models(tree.zeros(inside), num_clients)
        return Server(w, changes, jnp.tile(centre, (num_clients, 1)))

    def init_client(params, client_id, key):
        v = () if lam is None else simplex.first(task, params, vertices, key)
        return Client(v, centre, jnp.bool_(False))

    def message(turn, server, client):
        beta = server.beta.at[turn.id].get(mode="fill", fill_value=1 / vertices)
        return Message(server.w, beta)

    def aggregate(server, uploads, cohort):
        inside, _ = tree.split(tree.sub(uploads, server.w), chosen)
        changes = affinity.received(server.changes, inside, cohort)

        def found():
            return simplex.places(changes, vertices)

        last = cohort.round == tau - 1
        beta = jax.lax.cond(last, found, lambda: server.beta)
        w = aggregation.mean(uploads, aggregation.by_rows(cohort))
        return Server(w, changes, beta)

    def personal(turn, server, client, data):
        beta = message(turn, server, client).beta
        return simplex.point(task, server.w if lam is None else client.v, beta)

    def server_model(server):
        return simplex.point(task, server.w, centre)

    def endpoints(server, client):
        v = server.w if lam is None else client.v
        return server_model(server), simplex.point(task, v, client.beta)

    return fedavg(task, local)._replace(
        init=init,
        init_client=init_client,
        message=message,
        train=training(task, local, tau, radius, lam),
        aggregate=aggregate,
        server_model=server_model,
        personal=personal,
        newcomer=lambda turn, server, data: server_model(server),
        endpoints=endpoints,
        origin=lambda message, client, upload: message.w,
        parts=("head",),
    )


def training(task, local, tau, radius, lam):
    """The `train` of Floco."""

    def train(turn, message, client, data):
        def loss(w, batch, key):
            return loss_at_random(task, tau, radius, turn, message.beta, w, batch, key)

        w, metrics = fit(loss, message.w, data, turn, local)
        if lam is None:
            return client._replace(beta=message.beta), w, metrics
        start = tree.where(client.begun, client.v, message.w)
        near = proximal(message.w, lam)
        v, _ = fit(loss, start, data, turn, local, penalty=near)
        return Client(v, message.beta, jnp.bool_(True)), w, metrics

    return train


def loss_at_random(task, tau, radius, turn, beta, w, batch, key):
    """The loss of a point, drawn anew at every step."""
    # Derived, for the key itself is that of dropout.
    draw = derive(key, "alpha")
    anywhere = simplex.uniform(draw, len(beta))
    inside = simplex.near(draw, beta, radius)
    alpha = jnp.where(turn.round < tau, anywhere, inside)
    return task.loss(simplex.point(task, w, alpha), batch, key)
