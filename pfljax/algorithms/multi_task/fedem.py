"""FedEM. Marfoq et al., NeurIPS 2021, https://arxiv.org/abs/2108.10252 (Algorithm 1).

    Server   w_1 .. w_M       Client  pi_k, this client's weights of the M models
    Message  all M models     Upload  all M models, trained
With l_m(s) the cross-entropy of w_m at row s, a round does, on all rows of client k,
E:  q_m(s) = pi_m exp(-l_m(s)) / sum_j pi_j exp(-l_j(s)),  of the models of the server;
M:  pi_m <- mean_s q_m(s),  and each w_m trains on  mean_s q_m(s) l_m(s),  q fixed.
The server takes the means by rows. Client k is judged by the mixture of probabilities
sum_m pi_m softmax(z_m), with the weights of its last round; one that never took part by
those of `newcomer_steps` steps E and M of pi, from equal weights.

All models see the same minibatches. In published code each has an order of its own, and
those who are absent count with the last broadcast, which damps the mean.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.clustering.ifca import ifca
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import losses
from pfljax.core.training import fit, mean_over_rows
from pfljax.core.types import Algorithm, Array, Local, Params, Task
from pfljax.registry import AtLeastOne, Count, component


class Mixture(NamedTuple):
    """The models by which a client is judged, and their weights."""

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
    """Builds FedEM; of one component it is FedAvg.

    Args:
      components: number of models that a client mixes; 1 is FedAvg.
      newcomer_steps: steps in which a newcomer finds its mixture.
    """
    size = local.batch_size
    equal = jnp.full(components, 1 / components, jnp.float32)

    def weights(models, pi, data):
        def mean(batch):
            q = responsibilities(task, models, pi, batch)
            return jax.vmap(losses.mean, in_axes=(0, None))(q, batch)

        # Without rows the weights are unknown.
        return jnp.where(data.size > 0, mean_over_rows(mean, data, size), pi)

    def train(turn, models, pi, data):
        def loss(trained, batch, key):
            # Of the broadcast models: so q stays that of the round, and is not stored.
            q = responsibilities(task, models, pi, batch)
            rows = row_losses(task, trained, batch, key)
            return jnp.sum(jax.vmap(losses.mean, in_axes=(0, None))(q * rows, batch))

        trained, metrics = fit(loss, models, data, turn, local)
        return weights(models, pi, data), trained, metrics

    def newcomer(turn, models, data):
        def step(_, pi):
            return weights(models, pi, data)

        pi = jax.lax.fori_loop(0, newcomer_steps, step, equal)
        return Mixture(models=models, pi=pi)

    def predict(mixture, batch):
        logits = jax.vmap(task.predict, in_axes=(0, None))(mixture.models, batch)
        log_pi = jnp.log(mixture.pi)[:, None, None]
        return jax.nn.logsumexp(log_pi + jax.nn.log_softmax(logits), axis=0)

    return fedavg(task, local)._replace(
        # The models differ from the start: equal ones would never part.
        init=ifca(task, local, clusters=components).init,
        init_client=lambda params, client_id, key: equal,
        train=train,
        predict=predict,
        server_model=None,
        personal=lambda turn, models, pi, data: Mixture(models=models, pi=pi),
        newcomer=newcomer,
    )


def row_losses(task, models, batch, key):
    """The cross-entropy of each model at each row, f32[M, B]."""

    def model_loss(w):
        return losses.example_losses(task.logits(w, batch, key), batch)

    return jax.vmap(model_loss)(models)


def responsibilities(task, models, pi, batch):
    """q, the share of each model in each row, f32[M, B]; in evaluation mode."""
    rows = row_losses(task, models, batch, None)
    return jax.nn.softmax(jnp.log(pi)[:, None] - rows, axis=0)
