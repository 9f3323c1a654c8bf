"""IFCA. Ghosh et al., NeurIPS 2020, https://arxiv.org/abs/2006.04088 (Algorithm 1).

    Server   w_1 .. w_K       Client  nothing
    Message  all K models     Upload  the trained params and the one-hot choice s_k
Client k takes j = argmin_j F_k(w_j) on all its training rows. Averaging of models:
w_j <- mean of the uploads that chose j, an empty cluster keeps its model. Averaging of
gradients: w_j <- w_j - rate / M  sum of grad F_k(w_j) over those. Client k is judged by
the model of least training loss.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.core import aggregation, statistics, tree
from pfljax.core.training import fit, full_gradient, learning_rate, mean_over_rows
from pfljax.core.types import Algorithm, Array, Local, Params, Task
from pfljax.registry import AtLeastOne


class Upload(NamedTuple):
    """Trained parameters, or the gradient, and whom they are for."""

    params: Params
    choice: Array  # f32[K], one-hot


def ifca(
    task: Task, local: Local, *, clusters: AtLeastOne = 2, averaging: str = "models"
) -> Algorithm:
    """Builds IFCA; `clusters` = 1 is FedAvg with uniform weights."""
    if averaging not in ("models", "gradients"):
        raise ValueError(f"averaging is {averaging!r}; known: 'models', 'gradients'")

    def init(params, num_clients, key):
        others = jax.vmap(task.init)(jax.random.split(key, clusters))
        return jax.tree.map(lambda models, own: models.at[0].set(own), others, params)

    def nearest(models, data):
        def losses(batch):
            return jax.vmap(lambda w: task.loss(w, batch, None))(models)

        return jnp.argmin(mean_over_rows(losses, data, local.batch_size))

    def train(turn, models, client, data):
        j = nearest(models, data)
        w, choice = tree.take(models, j), jax.nn.one_hot(j, clusters)
        if averaging == "models":
            w, metrics = fit(task.loss, w, data, turn, local)
            return client, Upload(w, choice), metrics
        size = local.batch_size
        loss, grads = full_gradient(task.loss, w, data, size, turn.key)
        return client, Upload(grads, choice), {"loss": loss}

    def aggregate(models, uploads, cohort):
        rate = learning_rate(local, cohort.round)
        average = averaged if averaging == "models" else stepped
        return average(models, uploads, cohort, rate)

    def personal(turn, models, client, data):
        return tree.take(models, nearest(models, data))

    return Algorithm(
        init=init,
        init_client=lambda params, client_id, key: (),
        message=lambda turn, models, client: models,
        train=train,
        aggregate=aggregate,
        personal=personal,
        predict=task.predict,
    )


def averaged(models, uploads, cohort, rate):
    """Each model, the uniform mean of the uploads that chose it."""
    member = uploads.choice * (cohort.draws * cohort.mask)[:, None]
    return aggregation.segment_mean(uploads.params, member, models)


def stepped(models, uploads, cohort, rate):
    """Each model, a step of rate / M along the sum of its own gradients."""
    reported = cohort.draws * cohort.mask
    member = uploads.choice * reported[:, None] / jnp.sum(reported)
    mean = jax.tree.map(
        lambda grads: jnp.tensordot(member, grads, axes=(0, 0)), uploads.params
    )
    return tree.sub(models, statistics.scale(mean, rate))
