"""PerFCL: FENDA-FL whose features are contrasted with those of older bodies.

Zhang et al., IEEE BigData 2022, https://ieeexplore.ieee.org/document/10020518/.

    Server   g, the shared body
    Client   l_k, its own body; h_k, a head of both; g_k, the shared body after its last
             round
    Message  g                Upload  g_k, the shared body after local training

Let z_l and z_g be the features of an example by both bodies in training, z_l' those by
l_k as it was before the round, z_g' by the received g, and z_g'' by the last g_k.
Client k minimises the loss of FENDA-FL and the mean over its examples of

    mu con(z_g; z_g', z_g'') + gamma con(z_l; z_l', z_g')
    con(z; a, b) = -log(e^(cos(z, a) / T) / (e^(cos(z, a) / T) + e^(cos(z, b) / T)))

where older features are constant, and computed in evaluation mode. So the shared body
stays near the server's, and the own body differs from it. In the first round of a
client both terms are left out, as in FL4Health. The rest is FENDA-FL.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.decoupling import fenda as base
from pfljax.algorithms.decoupling.fenda import fenda
from pfljax.core import losses
from pfljax.core.factories import component
from pfljax.core.ranges import NotNegative, Positive
from pfljax.core.server_model import wrap_client
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Local, Params, Task


class Client(NamedTuple):
    """What a client keeps."""

    kept: base.Client  # by FENDA-FL
    last: Params  # the shared model after its last round
    trained: Any  # bool[], whether there was one


@component
def perfcl(
    task: Task,
    local: Local,
    *,
    mu: NotNegative = 1.0,
    gamma: NotNegative = 1.0,
    temperature: Positive = 0.5,
) -> Algorithm:
    """Builds PerFCL; with `mu` and `gamma` 0 it is FENDA-FL.

    Args:
      mu: weight of the contrast of the shared body; 0 leaves it out.
      gamma: weight of the contrast of the own body; 0 leaves it out.
      temperature: the temperature T.
    """
    method = fenda(task, local)

    def contrast(z, near, far, batch):
        return losses.contrast(z, near, far, temperature, batch)

    def train(turn, body, client, data):
        own, shared = base.join(body, client.kept)

        def objective(pair, batch, key):
            (z_own, z), logits = apply_both(task, pair, batch, key)
            older = (
                task.features(old, batch, None) for old in (own, shared, client.last)
            )
            old_own, old, last = older
            pull = mu * contrast(z, old, last, batch)
            pull += gamma * contrast(z_own, old_own, old, batch)
            loss = losses.data_loss(task, logits.sum(0), batch)
            return loss + client.trained * pull, loss

        pair, metrics = fit_objective(objective, (own, shared), data, turn, local)
        body, kept = base.divide(task, pair)
        return Client(kept, pair[1], jnp.bool_(True)), body, metrics

    def init_client(params, client_id, key):
        kept = method.init_client(params, client_id, key)
        return Client(kept=kept, last=params, trained=jnp.bool_(False))

    return wrap_client(method, lambda client: client.kept)._replace(
        init_client=init_client, train=train
    )


def apply_both(task, pair, batch, key):
    """(features [2, B, ...], logits [2, B, K]) of two models, compiled once."""

    def apply(model):
        z = task.features(model, batch, key)
        return z, task.head(model, z, batch.mask, key)

    return jax.lax.map(apply, jax.tree.map(lambda *two: jnp.stack(two), *pair))
