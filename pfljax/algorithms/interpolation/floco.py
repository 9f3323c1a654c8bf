"""Floco. Grinwald, Wiesner, Nakajima, NeurIPS 2024, https://arxiv.org/abs/2403.03333

    Server   W_1 .. W_M, weights of the head, and one of all else: a simplex; beta_k,
             the point of every client k, and g_k, its last change of all W_m
    Client   beta_k as last sent; of Floco+ also a simplex of its own
    Message  the simplex, beta_k       Upload  the simplex, trained
A model has the weights  sum_m alpha_m W_m.  Each step draws alpha: in the first `tau`
rounds anywhere on the simplex, then at most `radius` from beta_k, in L1. The server
takes means by rows. After round `tau` it finds all beta_k, which then are fixed: the
first M principal components of the g_k, scaled so that their projections on the
simplex have the least Riesz energy. Client k is judged at beta_k. The centre, all
alpha_m = 1 / M, is the server's model, and that of who never took part; a client's path
leads from there to beta_k. Floco+ trains beside it a simplex of the client's own with
the penalty  lam / 2 ||v - w||^2,  and judges client k by that one.

Differs from the paper: no extra pass in which all clients train. g_k is of the last
round before `tau` in which k took part; who took part in none stays at the centre. In
published code a point may leave the simplex; here it does not. The own simplex begins
at the first one that is sent.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms.clustering.ifca import require_clients
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.interpolation import _simplex as simplex
from pfljax.core import aggregation, tree
from pfljax.core.keys import derive
from pfljax.core.losses import proximal
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import AtLeastOne, NotNegative, component


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


@component
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

    `lam` = 0 is local training of a simplex; a large one ties it to the server's. A run
    of fewer than `tau` rounds finds no points: its clients are judged at the centre.

    Args:
      vertices: models that span the simplex.
      tau: round at which clients get their points.
      radius: in L1 around a client's point, in which it trains.
      lam: pull of a client's own simplex to the server's (Floco+); None for Floco.

    Raises:
      ValueError: there are more vertices than clients, whose components they are.
    """
    require_clients("floco", vertices, num_clients, "vertices")
    centre = simplex.centre(vertices)

    def init(params, num_clients, key):
        w = simplex.first(task, params, vertices, key)
        unchanged = tree.zeros(simplex.vertex_leaves(task, w))
        changes = affinity.first_models(unchanged, num_clients)
        return Server(w, changes, jnp.tile(centre, (num_clients, 1)))

    def init_client(params, client_id, key):
        v = () if lam is None else simplex.first(task, params, vertices, key)
        return Client(v=v, beta=centre, begun=jnp.bool_(False))

    def client_beta(turn, server):
        return server.beta.at[turn.id].get(mode="fill", fill_value=1 / vertices)

    def personal(turn, server, client, data):
        return simplex.point(task, own_or(server.w, client), client_beta(turn, server))

    def endpoints(server, client):
        v = own_or(server.w, client)
        return simplex.point(task, server.w), simplex.point(task, v, client.beta)

    return fedavg(task, local)._replace(
        init=init,
        init_client=init_client,
        message=lambda turn, server, client: Message(
            server.w, client_beta(turn, server)
        ),
        train=training(task, local, tau, radius, lam),
        aggregate=placing(task, vertices, tau),
        server_model=lambda server: simplex.point(task, server.w),
        personal=personal,
        endpoints=endpoints,
        origin=lambda message, client, upload: message.w,
        uploads_by_client=True,
        parts=("head",),
    )


def own_or(w, client):
    """The client's own simplex, once it was trained; else w."""
    return w if client.v == () else tree.where(client.begun, client.v, w)


def placing(task, vertices, tau):
    """The `aggregate` of Floco: means, and the points of clients after round tau."""

    def aggregate(server, uploads, cohort):
        change = simplex.vertex_leaves(task, tree.sub(uploads, server.w))
        changes = affinity.receive(server.changes, change, cohort)
        beta = jax.lax.cond(
            cohort.round == tau - 1,
            lambda: simplex.places(changes, vertices),
            lambda: server.beta,
        )
        w = aggregation.mean(uploads, aggregation.by_examples(cohort))
        return Server(w, changes, beta)

    return aggregate


def training(task, local, tau, radius, lam):
    """The `train` of Floco."""

    def train(turn, message, client, data):
        def loss(w, batch, key):
            return loss_at_random(task, tau, radius, turn, message.beta, w, batch, key)

        w, metrics = fit(loss, message.w, data, turn, local)
        if lam is None:
            return client._replace(beta=message.beta), w, metrics
        near = proximal(message.w, lam)
        start = own_or(message.w, client)
        v, _ = fit(loss, start, data, turn, local, penalty=near, metrics=())
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
