"""MOON: features stay near those of the server's model, far from those of the last one.

Li, He, Song, CVPR 2021, https://arxiv.org/abs/2103.16257 (Algorithm 1).

    Server   w                Client  p_k, its model after its last round, if any
    Message  w                Upload  w_k, the parameters after local training

Let z_v be the features of an example by model v. From w, client k minimises

    F_k(v) + mu mean over its examples of con(z_v; z_w, z_p)
    con(z; a, b) = -log(e^(cos(z, a) / T) / (e^(cos(z, a) / T) + e^(cos(z, b) / T)))

where z_w and z_p are constant, and computed in evaluation mode. In the first round of a
client there is no p_k, and the term is left out. The rest is FedAvg. If p_k = w, the
term is log 2 without a gradient.

The paper's models have a projection of two dense layers between body and classifier. A
model whose body ends with these has them here. In the authors' code, a client that
first takes part in a later round has a random p_k. PFLlib has mu = 0 by default, which
is FedAvg, and keeps the old model in training mode.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import losses
from pfljax.core.factories import component
from pfljax.core.ranges import Count, NotNegative, Positive
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Local, Params, Task


class Client(NamedTuple):
    """What a client keeps."""

    last: Params  # its model after its last round
    trained: Any  # bool[], whether there was one


@component
def moon(
    task: Task,
    local: Local,
    *,
    mu: NotNegative = 1.0,
    temperature: Positive = 0.5,
    finetune: Count = 0,
) -> Algorithm:
    """Builds MOON; `mu` = 0, or clients that take part once, are FedAvg.

    Args:
      mu: weight of the contrast; 0 is FedAvg.
      temperature: the temperature T.
      finetune: local steps before the evaluation; 0 for none.
    """

    def train(turn, w, client, data):
        def pull(z, batch):
            near, far = (task.features(old, batch, None) for old in (w, client.last))
            contrast = losses.contrast(z, near, far, temperature, batch)
            return mu * client.trained * contrast

        objective = losses.pull_features(task, pull)
        w_k, metrics = fit_objective(objective, w, data, turn, local)
        return Client(last=w_k, trained=jnp.bool_(True)), w_k, metrics

    return fedavg(task, local, finetune=finetune)._replace(
        init_client=lambda params, client_id, key: Client(params, jnp.bool_(False)),
        train=train,
        # The features of a model without a body are its inputs, which nothing moves.
        parts=("body",),
    )
