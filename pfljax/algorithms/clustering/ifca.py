"""IFCA. Ghosh et al., NeurIPS 2020, https://arxiv.org/abs/2006.04088 (Algorithm 1).

    Server   w_1 .. w_K       Client  nothing
    Message  all K models     Upload  the trained params and the one-hot choice s_k
Client k takes j = argmin_j F_k(w_j) on all its training rows. Averaging of models:
w_j <- mean of the uploads that chose j, an empty cluster keeps its model. Averaging of
gradients: w_j <- w_j - rate / M  sum of grad F_k(w_j) over those. Client k is judged by
the model of least training loss.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.optimizers import learning_rate
from pfljax.core.training import fit, full_gradient, mean_over_rows
from pfljax.core.types import Algorithm, Local, Params, Task
from pfljax.registry import AtLeastOne, component


class Upload(NamedTuple):
    """Trained parameters, or the gradient, and whom they are for."""

    params: Params
    choice: Any  # f32[K], one-hot


@component
def ifca(
    task: Task,
    local: Local,
    *,
    clusters: AtLeastOne = 2,
    averaging: Literal["models", "gradients"] = "models",
    num_clients: AtLeastOne | None = None,
) -> Algorithm:
    """Builds IFCA; `clusters` = 1 is FedAvg with uniform weights.

    Args:
      clusters: number of models at the server.
      averaging: of "models" or of "gradients".

    Raises:
      ValueError: there are more clusters than clients.
    """
    require_clients("ifca", clusters, num_clients)

    def init(params, num_clients, key):
        keys = jax.random.split(key, clusters)
        # Equal models would never part. The first is what all methods start from.
        drawn = jax.vmap(task.init)(keys)
        return jax.tree.map(lambda models, w: models.at[0].set(w), drawn, params)

    def train(turn, models, client, data):
        j = nearest(task, models, data, local.batch_size)
        w = tree.take(models, j)
        choice = jax.nn.one_hot(j, clusters)
        if averaging == "models":
            w, metrics = fit(task.loss, w, data, turn, local)
            return client, Upload(params=w, choice=choice), metrics
        # This gradient is the training, in training mode by the turn's key.
        size = local.batch_size
        loss, grads = full_gradient(task.loss, w, data, size, turn.key)
        return client, Upload(params=grads, choice=choice), {"loss": loss}

    def aggregate(models, uploads, cohort):
        if averaging == "models":
            return average(models, uploads, cohort)
        rate = learning_rate(local, cohort.round)
        return descend(models, uploads, cohort, rate)

    def personal(turn, models, client, data):
        j = nearest(task, models, data, local.batch_size)
        return tree.take(models, j)

    return fedavg(task, local)._replace(
        init=init,
        train=train,
        aggregate=aggregate,
        personal=personal,
        server_model=None,
        origin=trained_model if averaging == "models" else no_model,
    )


def require_clients(method, clusters, num_clients, name="clusters"):
    """Raises a ValueError where there are more clusters than clients.

    `name` is what the method calls them.
    """
    if num_clients is not None and clusters > num_clients:
        raise ValueError(
            f"{method}: {name} is {clusters}, but the federation has {num_clients} "
            f"clients; choose {name} <= {num_clients}"
        )


# The choice says for whom an upload is: it is no change.
def trained_model(models, client, upload):
    """The model that the client trained: its upload began there."""
    chosen = tree.take(models, jnp.argmax(upload.choice))
    return Upload(params=chosen, choice=None)


def no_model(models, client, upload):
    """Zeros: a gradient is a change already."""
    return Upload(params=tree.zeros(upload.params), choice=None)


def nearest(task, models, data, batch_size):
    """j, the number of the model with the least mean loss on the client's rows."""

    # In evaluation mode: noise of dropout must not choose the cluster.
    def losses(batch):
        loss_of = jax.vmap(task.loss, in_axes=(0, None, None))
        return loss_of(models, batch, None)

    means = mean_over_rows(losses, data, batch_size)
    return jnp.argmin(means)


def average(models, uploads, cohort):
    """Each model, the uniform mean of the uploads that chose it."""
    reported = aggregation.uniform(cohort)
    member = uploads.choice * reported[:, None]
    return aggregation.segment_mean(uploads.params, member, models)


def descend(models, uploads, cohort, rate):
    """Each model, a step of rate / M along the sum of its own gradients."""
    reported = aggregation.uniform(cohort)
    # By M, not by the members of a cluster: a small one takes small steps.
    chosen = uploads.choice * reported[:, None]
    member = chosen / jnp.sum(reported)

    def sum_members(grads):
        return jnp.tensordot(member, grads, axes=(0, 0), precision="highest")

    slopes = jax.tree.map(sum_members, uploads.params)
    return tree.sub(models, statistics.scale(slopes, rate))
