"""FedEM: clients are mixtures of several shared models, trained by EM.

Marfoq et al., NeurIPS 2021, https://arxiv.org/abs/2108.10252 (Algorithm 1).

    Server   w_1 .. w_M       Client  pi_k, the client's weights of the M models
    Message  all M models     Upload  all M models after local training

Let l_m(s) be the cross-entropy of w_m at example s. A round does, on all examples of
client k:
E:  q_m(s) = pi_m exp(-l_m(s)) / sum_j pi_j exp(-l_j(s)),  with the server's models;
M:  pi_m <- mean_s q_m(s),  and each w_m trains on  mean_s q_m(s) l_m(s),  q fixed.
The server takes means weighted by examples. Client k is evaluated with the mixture of
probabilities  sum_m pi_m softmax(z_m),  with the weights of its last round. A client
that never took part has the weights after `newcomer_steps` E and M steps of pi, from
equal weights.

All models see the same minibatches. In the published code each has an order of its own,
and absent clients count with the last broadcast, which damps the mean.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms._models import draw_models
from pfljax.algorithms.fedavg import fedavg
from pfljax.core.factories import component
from pfljax.core.kinds import KINDS
from pfljax.core.losses import mean
from pfljax.core.ranges import AtLeastOne, Count
from pfljax.core.training import fit, mean_over_examples
from pfljax.core.types import Algorithm, Array, Local, Params, Task


class Mixture(NamedTuple):
    """The models with which a client is evaluated, and their weights."""

    models: Params  # leaves [M, ...]
    pi: Array  # f32[M]


@component
def fedem(
    task: Task,
    local: Local,
    *,
    components: AtLeastOne = 3,
    newcomer_steps: Count = 1,
) -> Algorithm:
    """Builds FedEM; with one component it is FedAvg.

    Args:
      components: number of models that a client mixes; 1 is FedAvg.
      newcomer_steps: EM steps in which a newcomer finds its mixture.
    """
    equal = jnp.full(components, 1 / components, jnp.float32)

    def weights(models, pi, data):
        def mean_q(batch):
            return means(responsibilities(task, models, pi, batch), batch)

        # A client without examples keeps its weights.
        new = mean_over_examples(mean_q, data, local.batch_size)
        return jnp.where(data.size > 0, new, pi)

    def train(turn, models, pi, data):
        def loss(trained, batch, key):
            # Of the broadcast models: q is that of the round without being stored.
            q = responsibilities(task, models, pi, batch)
            return jnp.sum(means(q * losses(task, trained, batch, key), batch))

        trained, metrics = fit(loss, models, data, turn, local)
        return weights(models, pi, data), trained, metrics

    def newcomer(turn, models, data):
        def step(_, pi):
            return weights(models, pi, data)

        pi = jax.lax.fori_loop(0, newcomer_steps, step, equal)
        return Mixture(models=models, pi=pi)

    def predict(mixture, batch):
        logits = jax.vmap(task.predict, in_axes=(0, None))(mixture.models, batch)
        return KINDS[task.kind].average(logits, jnp.log(mixture.pi))

    return fedavg(task, local)._replace(
        init=lambda params, count, key: draw_models(task, params, components, key),
        init_client=lambda params, client_id, key: equal,
        train=train,
        work=lambda steps, size, is_first: components * steps,
        predict=predict,
        server_model=None,
        personal=lambda turn, models, pi, data: Mixture(models=models, pi=pi),
        newcomer=newcomer,
    )


def losses(task, models, batch, key):
    """The loss of each model at each example, f32[M, B]."""

    def model_losses(w):
        return task.example_losses(task.logits(w, batch, key), batch.y)

    return jax.vmap(model_losses)(models)


def responsibilities(task, models, pi, batch):
    """q, the share of each model in each example, f32[M, B]; in evaluation mode."""
    log_q = jnp.log(pi)[:, None] - losses(task, models, batch, None)
    return jax.nn.softmax(log_q, axis=0)


def means(values, batch):
    """The means of values f32[M, B] over the examples that count, f32[M]."""
    return jax.vmap(mean, in_axes=(0, None))(values, batch)
