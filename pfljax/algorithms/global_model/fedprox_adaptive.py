"""FedProx with adaptive mu. Li et al., MLSys 2020, https://arxiv.org/abs/1812.06127
(section 5.3.2, appendix C.3.3).

    Server   w, mu, how often the loss fell in a row, each client's last F_k(w)
    Client   nothing
    Message  w, mu
    Upload   w_k, and F_k(w)
FedProx, whose mu grows by `step` when the training loss rises, and shrinks by `step`,
down to 0, when it has fallen `streak` times in a row, which are then counted anew.
The experiment of the paper begins at the wrong end: mu = 1 on IID rows, 0 on others.

The loss is that of the model before local training, over all training rows of a client,
weighed by rows. Where all clients take part, it is the global training loss, as in the
paper. Where some do, those of a cohort that have reported before are held against
their own last losses: other clients have other losses, which says nothing of progress.
A round in which nobody reported before counts neither way.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from pfljax.algorithms.global_model.fedprox import fedprox
from pfljax.core import aggregation
from pfljax.core.server_model import wrap_server
from pfljax.core.training import mean_over_rows
from pfljax.core.types import Algorithm, Local, Params, Task
from pfljax.registry import AtLeastOne, Count, NotNegative, component


class Server(NamedTuple):
    """The model, mu, and what the rule remembers."""

    w: Params
    mu: Any  # f32[]
    falls: Any  # i32[], rounds in a row in which the loss fell
    losses: Any  # f32[C], F_k when client k took part last
    known: Any  # bool[C], whether it ever did


class Message(NamedTuple):
    """A model, and how strongly to hold to it."""

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
    """Builds adaptive FedProx, which begins at `mu`; `step` = 0 is FedProx.

    The metric mu is what clients of the round were told. `inexactness` as in FedProx.

    Args:
      mu: weight of the proximal term at first.
      step: by which mu rises or falls; 0 is FedProx.
      streak: rounds of falling loss in a row after which mu shrinks.
      inexactness: adds the metric gamma.
      finetune: local steps that precede evaluation; 0 for none.
    """

    def train(turn, message, client, data):
        near = fedprox(task, local, mu=message.mu, inexactness=inexactness)
        client, w_k, metrics = near.train(turn, message.w, client, data)

        def loss(batch):
            return task.loss(message.w, batch, None)

        before = mean_over_rows(loss, data, local.batch_size)
        metrics["mu"] = message.mu
        return client, Upload(w=w_k, loss=before), metrics

    def aggregate(server, uploads, cohort):
        return adapt(server, uploads, cohort, step, streak)

    shared = fedprox(task, local, finetune=finetune)
    return wrap_server(shared, lambda server: server.w)._replace(
        init=lambda params, num_clients, key: first(params, num_clients, mu),
        message=lambda turn, server, client: Message(w=server.w, mu=server.mu),
        train=train,
        aggregate=aggregate,
        origin=lambda message, client, upload: Upload(w=message.w, loss=None),
    )


def first(params, num_clients, mu):
    """The server before anybody reported."""
    return Server(
        w=params,
        mu=jnp.float32(mu),
        falls=jnp.int32(0),
        losses=jnp.zeros(num_clients),
        known=jnp.zeros(num_clients, bool),
    )


def adapt(server, uploads, cohort, step, streak):
    """The server after these uploads: mu by the rule, and what it remembers."""
    losses = uploads.loss
    # Empty slots have the id C, past the end: nobody is known there.
    known = server.known.at[cohort.ids].get(mode="fill", fill_value=False)
    last = server.losses.at[cohort.ids].get(mode="fill", fill_value=0)
    changes = jnp.where(known, losses - last, 0)
    # In one mean, for devices speak to one another once a round.
    summands = uploads.w, changes, known.astype(jnp.float32)
    w, change, compared = aggregation.mean(summands, aggregation.by_examples(cohort))
    falls = jnp.where(change < 0, server.falls + 1, 0)
    # Without anybody to compare there is neither a rise nor an end of the falls.
    falls = jnp.where(compared > 0, falls, server.falls)
    enough = falls >= streak
    mu = server.mu + step * (change > 0) - step * enough
    present = aggregation.present_ids(cohort)
    return Server(
        w=w,
        mu=jnp.maximum(mu, 0),
        falls=jnp.where(enough, 0, falls),
        losses=server.losses.at[present].set(losses, mode="drop"),
        known=server.known.at[present].set(True, mode="drop"),
    )
