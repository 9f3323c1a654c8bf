"""FedPHP: clients inherit from a moving mean of the models that they trained.

Li et al., ECML PKDD 2021, https://doi.org/10.1007/978-3-030-86486-6_36.

    Server   w                Client  p_k, its historical model; c_k, its rounds so far
    Message  w                Upload  w_k, the parameters after local training

From w, client k minimises  (1 - lam) F_k(w_k) + lam R(w_k, p_k).  With "mmd", R is the
maximum mean discrepancy between the features of both models (`_mmd`, relative widths);
with "kd" it is the cross-entropy of the logits of w_k with softmax(logits of p_k / 4).
p_k is constant. After training,

    p_k <- mu_k p_k + (1 - mu_k) w_k,    mu_k = mu min(1, c_k / (share rounds)),

where share * rounds is the number of rounds that a client can expect. The server is
FedAvg's. Client k is evaluated with p_k, or with w before it first takes part.

In PFLlib mu follows the round instead of c_k, lam is 1 by default, so that there is no
data loss, and p_k is never evaluated.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.decoupling._mmd import discrepancy
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import tree
from pfljax.core.factories import component
from pfljax.core.losses import data_loss, mean
from pfljax.core.ranges import AtLeastOne, PositiveShare, Share
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Local, Params, Task

TEMPERATURE = 4.0


class Client(NamedTuple):
    """The state of a client."""

    p: Params
    count: Any  # f32[], rounds that it has trained in


@component
def fedphp(
    task: Task,
    local: Local,
    *,
    lam: Share = 0.1,
    by: Literal["mmd", "kd"] = "mmd",
    mu: Share = 0.9,
    share: PositiveShare = 1.0,
    rounds: AtLeastOne = 100,
) -> Algorithm:
    """Builds FedPHP; with `lam` = 0 the server follows FedAvg.

    Args:
      lam: weight of the historical model, beside 1 - `lam` of the data loss.
      by: what is compared with it, features by "mmd" or logits by "kd".
      mu: largest weight of the past in p_k; 0 keeps the last trained model.
      share: the share of clients that take part in a round.
    """

    def differ(z, logits, p, batch):
        if by == "mmd":
            past = task.features(p, batch, None)
            return discrepancy(z, jax.lax.stop_gradient(past), batch, relative=True)
        soft = jax.nn.softmax(task.logits(p, batch, None) / TEMPERATURE)
        rows = jnp.sum(jax.lax.stop_gradient(soft) * jax.nn.log_softmax(logits), -1)
        return -mean(rows, batch)

    def train(turn, w, client, data):
        def objective(w, batch, key):
            z = task.features(w, batch, key)
            logits = task.head(w, z, batch.mask, key)
            loss = data_loss(task, logits, batch)
            return (1 - lam) * loss + lam * differ(z, logits, client.p, batch), loss

        w, metrics = fit_objective(objective, w, data, turn, local)
        past = mu * jnp.minimum(1, client.count / jnp.maximum(1, share * rounds))
        p = tree.lerp(w, client.p, past)
        return Client(p, client.count + 1), w, metrics

    return fedavg(task, local)._replace(
        init_client=lambda params, client_id, key: Client(params, jnp.float32(0)),
        train=train,
        personal=lambda turn, w, client, data: client.p,
        newcomer=lambda turn, w, data: w,
        parts=("body",),
        classes=by == "kd",
    )
