"""FedProx with adaptive mu, which follows the training loss.

Li et al., MLSys 2020, https://arxiv.org/abs/1812.06127 (section 5.3.2, appendix C.3.3).

    Server   w, mu, the number of rounds in a row in which the loss fell, and the last
             F_k(w) of each client
    Client   nothing
    Message  w, mu
    Upload   w_k, and F_k(w)

FedProx, where mu grows by `step` when the training loss rises, and shrinks by `step`,
down to 0, when the loss has fallen `streak` times in a row; then the count starts
again. The paper starts from an unsuitable mu on purpose: 1 on IID data, 0 otherwise.

The loss is that of the model before local training, over all training examples of a
client, weighted by examples. With full participation it is the global training loss,
as in the paper. Otherwise the clients of a cohort that have reported before are
compared with their own last losses, since the losses of other clients differ and say
nothing about progress. A round without such clients counts neither way.
"""

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp

from pfljax.algorithms.global_model.fedprox import fedprox
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, Count, NotNegative
from pfljax.core.server_model import wrap_server
from pfljax.core.training import full_loss
from pfljax.core.types import Algorithm, Local, Params, Task


class Server(NamedTuple):
    """The model, mu, and what the rule remembers."""

    w: Params
    mu: Any  # f32[]
    falls: Any  # i32[], rounds in a row in which the loss fell
    losses: Any  # f32[C], F_k when client k last took part
    known: Any  # bool[C], whether client k ever took part


class Message(NamedTuple):
    """A model, and the weight of the proximal term."""

    w: Params
    mu: Any


class Upload(NamedTuple):
    """A client's model after training, and its loss before."""

    w: Params
    loss: Any


@component
def fedprox_adaptive(
    task: Task,
    local: Local,
    *,
    mu: NotNegative = 0.0,
    step: NotNegative = 0.1,
    streak: AtLeastOne = 5,
    inexactness: bool = False,
    finetune: Count = 0,
) -> Algorithm:
    """Builds adaptive FedProx, which starts at `mu`; `step` = 0 is FedProx.

    The metric mu is the value that the round's clients were sent. `inexactness` is that
    of FedProx.

    Args:
      mu: first weight of the proximal term.
      step: amount by which mu rises or falls; 0 is FedProx.
      streak: rounds of falling loss in a row after which mu shrinks.
      inexactness: add the metric gamma.
      finetune: local steps before the evaluation; 0 for none.
    """

    def init(params, num_clients, key):
        losses, known = jnp.zeros(num_clients), jnp.zeros(num_clients, bool)
        return Server(params, jnp.float32(mu), jnp.int32(0), losses, known)

    def train(turn, message, client, data):
        near = fedprox(task, local, mu=message.mu, inexactness=inexactness)
        client, w_k, metrics = near.train(turn, message.w, client, data)
        before = full_loss(task.loss, message.w, data, local.batch_size)
        return client, Upload(w=w_k, loss=before), metrics | {"mu": message.mu}

    shared = fedprox(task, local, finetune=finetune)
    return wrap_server(shared, lambda server: server.w)._replace(
        init=init,
        message=lambda turn, server, client: Message(w=server.w, mu=server.mu),
        train=train,
        aggregate=partial(aggregate, step, streak),
        origin=lambda message, client, upload: Upload(w=message.w, loss=None),
    )


def aggregate(step, streak, server, uploads, cohort):
    """The mean model, and mu after the rule."""
    # Empty slots have the id C, past the end: no such client is known.
    last, known = tree.take_or((server.losses, server.known), cohort.ids, False)
    changes = jnp.where(known, uploads.loss - last, 0)
    # In one mean, so that devices communicate once a round.
    summands = uploads.w, changes, known.astype(jnp.float32)
    w, change, compared = aggregation.mean(summands, aggregation.by_examples(cohort))
    falls = jnp.where(change < 0, server.falls + 1, 0)
    # Without clients to compare, the loss neither rises nor stops falling.
    falls = jnp.where(compared > 0, falls, server.falls)
    enough = falls >= streak
    mu = server.mu + step * (change > 0) - step * enough
    return Server(
        w=w,
        mu=jnp.maximum(mu, 0),
        falls=jnp.where(enough, 0, falls),
        losses=aggregation.record(server.losses, uploads.loss, cohort),
        known=aggregation.record(server.known, True, cohort),
    )
