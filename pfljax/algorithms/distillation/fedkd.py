"""FedKD: clients distil between their own model and a small shared one.

Wu et al., Nature Communications 13 (2022), https://arxiv.org/abs/2108.13323.

    Server   v, the mentee, and the bytes of its last change
    Client   w_k, the client's own model (the mentor), and a projection P_k
    Message  the server       Upload  v_k - v at low rank (`_low_rank`)

Let z be the features, p the softmax outputs, and q = CE(w) + CE(v). Each step, on one
batch and all from the values before it, moves
w_k by  CE(w) + (KL(p_v || p_w) + MSE(z_w, z_v P)) / q  and
v_k, P_k by  CE(v) + (KL(p_w || p_v) + MSE(z_w, z_v P)) / q,
where the outputs of the other model are constant; q is differentiated by the model's
own CE, as in the authors' code. The server takes v <- v + the mean
change, again at low rank. A share T of the energy is kept, which goes from
`energy_start` to `energy_end` over the rounds. Client k is evaluated with w_k, even
before it first takes part. The mentee is `task.proxy`, or a second model of the task,
and is drawn with a key of its own. The running statistics of v_k stay with client k.

Shapes are static, so the bytes of message and upload are those of whole models. The
bytes at low rank are in the metrics: "sent_bytes" of a client, and "received_bytes" of
a client that took part in the round before; the first message is a whole model.

Differs from the authors' code, which minimises the sum of all terms in w_k, v_k and P_k
at once, through the other model as well, so that MSE counts twice; which matches
hidden layers of both models without P_k; where T depends on (t + 1) / R in round t,
here on t / R; and which sends a tensor as zeros if its least singular value is needed.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms._models import size_ratio
from pfljax.algorithms._prototypes import width
from pfljax.algorithms.distillation import _low_rank as low_rank
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.local_statistics import keep_of_proxy, unsent
from pfljax.core.losses import data_loss, divergence, square_distance
from pfljax.core.ranges import AtLeastOne, Share
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Array, Local, Params, Task, zero_origin

DRAW = jax.nn.initializers.lecun_normal()  # of the projection


class Server(NamedTuple):
    """The mentee, and the bytes of its last change."""

    v: Params
    size: Array  # f32[], bytes


class Client(NamedTuple):
    """The mentor, and the projection of the mentee's features."""

    w: Params
    projection: Array  # f32[width of the mentee's features, of the mentor's]


class Outputs(NamedTuple):
    """The outputs of one of the two models for a batch."""

    features: Array  # [B, width of the mentor's features]
    logits: Array  # [B, K]


@component
def fedkd(
    task: Task,
    local: Local,
    *,
    energy_start: Share = 0.95,
    energy_end: Share = 0.98,
    rounds: AtLeastOne = 100,
) -> Algorithm:
    """Builds FedKD; an energy of 1 sends changes without loss.

    Args:
      energy_start: share of the singular values' energy in the first round.
      energy_end: share that the last round approaches; 1 sends without loss.
    """
    proxy = task.proxy or task
    objective = mutual(task, proxy)

    def energy_at(round_):
        return energy_start + round_ / rounds * (energy_end - energy_start)

    def init(params, num_clients, key):
        v = proxy.init(key)
        return Server(v=v, size=jnp.float32(tree.nbytes(unsent(v))))

    def init_client(params, client_id, key):
        projection = DRAW(key, (width(proxy), width(task)))
        return Client(w=params, projection=projection)

    def train(turn, message, client, data):
        start = (client.w, message.v, client.projection)
        models, metrics = fit_objective(objective, start, data, turn, local)
        w, v, projection = models
        change = tree.sub(v, message.v)
        change, size = low_rank.compress(change, energy_at(turn.round))
        metrics |= {"sent_bytes": size, "received_bytes": message.size}
        return Client(w=w, projection=projection), change, metrics

    def aggregate(server, uploads, cohort):
        change = aggregation.mean(uploads, aggregation.uniform(cohort))
        change, size = low_rank.compress(change, energy_at(cohort.round))
        return Server(v=tree.add(server.v, change), size=size)

    method = alone(task, local)._replace(
        classes=True,
        init=init,
        init_client=init_client,
        message=lambda turn, server, client: server,
        train=train,
        work=lambda steps, size, is_first: (1 + size_ratio(proxy, task)) * steps,
        aggregate=aggregate,
        personal=lambda turn, server, client, data: client.w,
        origin=zero_origin,
    )
    return keep_of_proxy(method, proxy, differences=True)


def mutual(task, proxy):
    """The objective of mentor, mentee and projection, and the mentor's CE."""

    def objective(models, batch, key):
        w, v, projection = models
        mentor = outputs(task, w, batch, key)
        mentee = outputs(proxy, v, batch, derive(key, "mentee"))
        projected = mentee._replace(features=mentee.features @ projection)
        loss, mentor_total = adaptive(task, mentor, projected, batch)
        _, mentee_total = adaptive(task, projected, mentor, batch)
        return mentor_total + mentee_total, loss

    return objective


def outputs(task, params, batch, key):
    """The outputs of a model for a batch, by one forward pass."""
    z = task.features(params, batch, key)
    logits = task.head(params, z, batch.mask, key)
    return Outputs(features=z.reshape(len(z), -1), logits=logits)


def adaptive(task, own, other, batch):
    """(CE of a model, its objective), where the other model is constant."""
    other = jax.lax.stop_gradient(other)
    loss = data_loss(task, own.logits, batch)
    # Distillation is weak if models are bad; q of a batch without examples is 0.
    q = jnp.maximum(loss + data_loss(task, other.logits, batch), 1e-8)
    return loss, loss + distance(own, other, batch) / q


def distance(own, other, batch):
    """The distance between the outputs of two models."""
    hidden = square_distance(own.features, other.features, batch)
    return divergence(other.logits, own.logits, batch) + hidden
