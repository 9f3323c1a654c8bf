"""FedDBE: clients keep a bias of their features, and mean features are drawn together.

Zhang et al., NeurIPS 2023, https://arxiv.org/abs/2311.14975 (Algorithm 1).

    Server   w = (b, h); z*, the mean features of all, once it is known
    Client   m_k, the bias memory, 0 at first
    Message  w and z*         Upload  w_k, and at first the mean features z_k

Once z* is known, client k minimises over w_k and m_k

    CE(h(b(x) + m_k), y) + kappa / 2 mean_e (z~ - z*)^2,
    z~ <- (1 - mu) z~ + mu mean_batch b(x),

where z~ is 0 before the first step of a round, and constant but for the minibatch. The
server is FedAvg's. Client k predicts with h(b(x) + m_k), and the server's model, like a
client that never took part, with h(b(x)).

Differs from the published code, where all clients train once before the first round to
find z*, and that training is thrown away. Here the first round is one of FedAvg, and z*
is the mean over the examples of its cohort, by the trained models in evaluation mode.
The authors' kappa is 50 on Fashion-MNIST, at the rate 0.005. PFLlib's default is 0,
which leaves the regulariser out.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics
from pfljax.core.factories import component
from pfljax.core.losses import data_loss
from pfljax.core.ranges import NotNegative, Share
from pfljax.core.training import fit_objective, mean_over_examples
from pfljax.core.types import Algorithm, Local, Params, Task


class Server(NamedTuple):
    """The model and the mean features; this is also the message."""

    w: Params
    mean: Any  # f32[features], z*
    known: Any  # f32[], 1 once z* is known


class Upload(NamedTuple):
    """Trained parameters, and mean features until z* is known."""

    w: Params
    mean: Any


class Shifted(NamedTuple):
    """A model and what is added to its features."""

    w: Params
    m: Any


@component
def feddbe(
    task: Task,
    local: Local,
    *,
    kappa: NotNegative = 50.0,
    mu: Share = 1.0,
) -> Algorithm:
    """Builds FedDBE.

    Args:
      kappa: weight of the distance of mean features; 0 leaves it out.
      mu: weight of a minibatch in the mean features; 1 is the minibatch alone.
    """
    nothing = jnp.zeros(task.feature_shape)

    def mean_features(w, batch, key=None):
        z = task.features(w, batch, key)
        count = jnp.maximum(jnp.sum(batch.mask), 1)
        return z, jnp.tensordot(batch.mask, z, 1, precision="highest") / count

    def train(turn, server, m, data):
        def objective(stepped, batch, key):
            w, m, old = stepped["w"], stepped["m"], stepped[statistics.STATISTICS]
            z, mean = mean_features(w, batch, key)
            logits = task.head(w, z + server.known * m, batch.mask, key)
            mean = (1 - mu) * jax.lax.stop_gradient(old) + mu * mean
            apart = kappa * server.known / 2 * jnp.mean((mean - server.mean) ** 2)
            loss = data_loss(task, logits, batch)
            # z~ steps as running statistics do: to its new value.
            return statistics.following(loss + apart, old, mean), loss

        stepped = {"w": server.w, "m": m, statistics.STATISTICS: nothing}
        stepped, metrics = fit_objective(objective, stepped, data, turn, local)
        w = stepped["w"]

        def measure():
            def value(batch):
                return mean_features(w, batch)[1]

            return mean_over_examples(value, data, local.batch_size)

        mean = jax.lax.cond(server.known > 0, lambda: nothing, measure)
        return stepped["m"], Upload(w, mean), metrics

    def aggregate(server, uploads, cohort):
        new = aggregation.mean(uploads, aggregation.by_examples(cohort))
        mean = jnp.where(server.known > 0, server.mean, new.mean)
        heard = jnp.any(cohort.mask > 0).astype(jnp.float32)
        return Server(new.w, mean, jnp.maximum(server.known, heard))

    def predict(model, batch):
        return task.head(model.w, task.features(model.w, batch, None) + model.m)

    return fedavg(task, local)._replace(
        init=lambda params, num_clients, key: Server(params, nothing, jnp.float32(0)),
        init_client=lambda params, client_id, key: nothing,
        train=train,
        aggregate=aggregate,
        server_model=lambda server: server.w,
        personal=lambda turn, server, m, data: Shifted(server.w, m),
        newcomer=lambda turn, server, data: Shifted(server.w, nothing),
        predict=predict,
        origin=lambda server, m, upload: Upload(server.w, nothing),
        parts=("body", "head"),
    )
