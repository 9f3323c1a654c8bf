"""IFCA: clients find their clusters, whose models are trained in turn.

Ghosh et al., NeurIPS 2020, https://arxiv.org/abs/2006.04088 (Algorithm 1).

    Server   w_1 .. w_K       Client  nothing
    Message  all K models     Upload  the trained parameters and the one-hot choice s_k

Client k takes j = argmin_j F_k(w_j) over all its training examples. If models are
averaged, w_j becomes the mean of the uploads that chose j, and an empty cluster keeps
its model. If gradients are averaged, w_j <- w_j - rate / M  sum of grad F_k(w_j) over
those clients. Client k is evaluated with the model of least training loss.
"""

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms._models import draw_models, require_clients
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.factories import component
from pfljax.core.minibatches import steps_per_epoch
from pfljax.core.optimizers import learning_rate
from pfljax.core.ranges import AtLeastOne
from pfljax.core.training import fit, full_gradient, mean_over_examples
from pfljax.core.types import Algorithm, Local, Params, Task, local_steps


class Upload(NamedTuple):
    """Trained parameters or the gradient, and the cluster that they belong to."""

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
      averaging: what the server averages: "models" or "gradients".

    Raises:
      ValueError: there are more clusters than clients.
    """
    require_clients("ifca: clusters", clusters, num_clients)

    def train(turn, models, client, data):
        j, w = nearest(task, models, data, local.batch_size)
        choice = jax.nn.one_hot(j, clusters)
        if averaging == "models":
            w, metrics = fit(task.loss, w, data, turn, local)
            return client, Upload(params=w, choice=choice), metrics
        # This gradient is the training: it is in training mode, by the turn's key.
        loss, grads = full_gradient(task.loss, w, data, local.batch_size, turn.key)
        return client, Upload(params=grads, choice=choice), {"loss": loss}

    def work(steps, size, is_first):
        return steps_per_epoch(local, size)

    def personal(turn, models, client, data):
        _, w = nearest(task, models, data, local.batch_size)
        return w

    return fedavg(task, local)._replace(
        init=lambda params, num_clients, key: draw_models(task, params, clusters, key),
        train=train,
        work=local_steps if averaging == "models" else work,
        aggregate=average if averaging == "models" else partial(descend, local),
        personal=personal,
        server_model=None,
        origin=trained_model if averaging == "models" else no_model,
    )


# The choice names a cluster: it is no change.
def trained_model(models, client, upload):
    """The model that the client trained, where its upload started."""
    chosen = tree.take(models, jnp.argmax(upload.choice))
    return Upload(params=chosen, choice=None)


def no_model(models, client, upload):
    """Zeros: a gradient is a change already."""
    return Upload(params=tree.zeros(upload.params), choice=None)


def nearest(task, models, data, batch_size):
    """(j, w_j) of the model with the least mean loss over the client's examples.

    In evaluation mode: the noise of dropout must not choose the cluster.
    """

    def losses(batch):
        return jax.vmap(lambda w: task.loss(w, batch, None))(models)

    j = jnp.argmin(mean_over_examples(losses, data, batch_size))
    return j, tree.take(models, j)


def average(models, uploads, cohort):
    """Each model as the uniform mean of the uploads that chose it."""
    member = uploads.choice * aggregation.uniform(cohort)[:, None]
    return aggregation.segment_mean(uploads.params, member, models)


def descend(local, models, uploads, cohort):
    """Each model after a step of rate / M along the sum of its own gradients."""
    reported = aggregation.uniform(cohort)
    # By M, not by the members of a cluster: a small cluster takes small steps.
    member = uploads.choice * reported[:, None] / jnp.sum(reported)
    slopes = aggregation.weighted_sum(uploads.params, member.T)
    rate = learning_rate(local, cohort.round)
    return tree.sub(models, statistics.scale(slopes, rate))
