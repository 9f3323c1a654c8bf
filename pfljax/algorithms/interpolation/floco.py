"""Floco: clients train in their own regions of a simplex of models.

Grinwald, Wiesner, Nakajima, NeurIPS 2024, https://arxiv.org/abs/2403.03333

    Server   a simplex: W_1 .. W_M, weights of the head, and one copy of everything
             else; beta_k, the point of every client k; g_k, its last change of all W_m;
             whether the points have been computed
    Client   beta_k as last sent; for Floco+ also a simplex of its own
    Message  the simplex, beta_k, whether it has been computed
    Upload   the simplex after local training

A point alpha of the simplex is the model with the weights  sum_m alpha_m W_m.  Each
step draws alpha: anywhere on the simplex until the points have been computed, and then
within `radius` of beta_k, in L1. The server takes means weighted by examples. After
round `tau`, or the first later one in which a client reports, it computes all beta_k,
which then are fixed: the first M principal components of the g_k, scaled so that their
projections on the simplex have the least Riesz energy.

Client k is evaluated at beta_k. The server's model is the centre, where all alpha_m are
1 / M. A client that never took part is evaluated there too. A client's path leads from
the centre to beta_k. Floco+ also trains a simplex of the client's own with the penalty
lam / 2 ||v - w||^2,  and evaluates client k with the model of that simplex.

Differs from the paper: there is no extra pass in which all clients train. g_k is that
of the last round before `tau` in which k took part, and a client that took part in none
stays at the centre. In the published code a point may leave the simplex; here it does
not. The own simplex starts from the first one that is sent.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms._models import require_clients
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.interpolation import _simplex as simplex
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.losses import proximal
from pfljax.core.ranges import AtLeastOne, NotNegative
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task


class Server(NamedTuple):
    """The simplex, and what the server keeps of its clients."""

    w: Any
    changes: affinity.Models  # leaves [C, M, ...]
    beta: Any  # f32[C, M]
    placed: Any  # bool[], whether beta has been computed


class Client(NamedTuple):
    """The state of a client; v is () without Floco+."""

    v: Any
    beta: Any  # f32[M]
    begun: Any  # bool[], whether v has been trained


class Message(NamedTuple):
    """The simplex, and the client's point in it."""

    w: Any
    beta: Any  # f32[M]
    placed: Any  # bool[], whether the points have been computed


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
    """Builds Floco, or Floco+ if there is a `lam`; with one vertex Floco is FedAvg.

    `lam` = 0 is local training of a simplex, and a large one ties it to the server's. A
    run of fewer than `tau` rounds computes no points: it evaluates clients at the
    centre.

    Args:
      vertices: number of models that span the simplex.
      tau: round after which clients get their points, if one reports.
      radius: L1 distance from a client's point within which it trains.
      lam: pull of a client's own simplex to the server's (Floco+); None for Floco.

    Raises:
      ValueError: there are more vertices than clients, whose components they are.
    """
    require_clients("floco: vertices", vertices, num_clients)

    def init(params, num_clients, key):
        w = simplex.first(task, params, vertices, key)
        unchanged = tree.zeros(simplex.vertex_leaves(task, w))
        changes = affinity.first_models(unchanged, num_clients)
        beta = jnp.tile(simplex.centre(vertices), (num_clients, 1))
        return Server(w, changes, beta, placed=jnp.bool_(False))

    def init_client(params, client_id, key):
        v = () if lam is None else simplex.first(task, params, vertices, key)
        return Client(v=v, beta=simplex.centre(vertices), begun=jnp.bool_(False))

    def endpoints(server, client):
        v = trained_or(server.w, client)
        return simplex.point(task, server.w), simplex.point(task, v, client.beta)

    return fedavg(task, local)._replace(
        init=init,
        init_client=init_client,
        message=message,
        train=training(task, local, radius, lam),
        work=lambda steps, size, is_first: (1 if lam is None else 2) * steps,
        aggregate=partial(aggregate, task, tau),
        server_model=lambda server: simplex.point(task, server.w),
        personal=partial(evaluate, task),
        endpoints=endpoints,
        origin=lambda message, client, upload: message.w,
        uploads_by_client=True,
        parts=("head",),
    )


def message(turn, server, client):
    """The simplex and beta_k: the centre for a client that is not part of the run."""
    beta = tree.take_or(server.beta, turn.id, 1 / server.beta.shape[1])
    return Message(server.w, beta, server.placed)


def evaluate(task, turn, server, client, data):
    """The model of a client, at its point."""
    w, beta, _ = message(turn, server, client)
    return simplex.point(task, trained_or(w, client), beta)


def trained_or(w, client):
    """The client's own simplex once it has been trained, else w."""
    return w if client.v == () else tree.where(client.begun, client.v, w)


def aggregate(task, tau, server, uploads, cohort):
    """The mean simplex, and the points of all clients from round `tau` on."""
    change = simplex.vertex_leaves(task, tree.sub(uploads, server.w))
    changes = affinity.receive(server.changes, change, cohort)
    placed = server.placed | (cohort.round >= tau - 1)
    beta = jax.lax.cond(
        placed & ~server.placed,
        lambda: simplex.place_clients(changes, server.beta.shape[1]),
        lambda: server.beta,
    )
    w = aggregation.mean(uploads, aggregation.by_examples(cohort))
    return Server(w, changes, beta, placed)


def training(task, local, radius, lam):
    """The `train` of Floco."""

    def train(turn, message, client, data):
        w, beta, placed = message

        def loss(w, batch, key):
            # A point drawn anew at every step; the key itself is that of dropout.
            draw = derive(key, "alpha")
            alpha = simplex.draw_for(placed, draw, beta, radius)
            return task.loss(simplex.point(task, w, alpha), batch, key)

        trained, metrics = fit(loss, w, data, turn, local)
        if lam is None:
            return client._replace(beta=beta), trained, metrics
        start, pull = trained_or(w, client), proximal(w, lam)
        v, _ = fit(loss, start, data, turn, local, penalty=pull, metrics=())
        return Client(v, beta, jnp.bool_(True)), trained, metrics

    return train
