"""D-Distillation. Bistritz, Mann, Bambos, NeurIPS 2020.

https://proceedings.neurips.cc/paper/2020/hash/fef6f971605336724b5e6c0c12dc2534-Abstract.html

    Server   z_k and s_k of every client k, on the rows of the server; of which of them
             it has heard; R, the rows of the coming round
    Client   w_k, this client's own params
    Message  z_k on R, of which of them it has heard, R
    Upload   s_k' = softmax f(w_k; x) of each x in R, after local training
Each step goes down  F_k(w_k) + rho mean_x |softmax f(w_k; x) - z_k(x)|^2  where x are
a batch of rows of R; a row of which no neighbour has ever sent anything adds 0. Then on
R  z_k <- sum_j W_kj (z_j + s_j' - s_j),  s_k <- s_k':  a step of dynamic average
consensus, which keeps sum_k z_k = sum_k s_k. W are Metropolis weights,
1 / (1 + max(degree_k, degree_j)), of the edges between those who take part in a round.
Client k is judged by w_k. Labels of the server's rows are not read.

**A reconstruction.** The algorithm of the paper could not be read: distance, order of
the two steps and constants are chosen here to agree with what is published of it. Its
proof of convergence is not claimed.

There is no server in the paper: what it keeps here lies with the clients, an upload
goes to each neighbour, and z_k need not be sent. The server's rows are seen in
evaluation mode: without dropout, and statistics follow the client's own rows alone.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax.algorithms._row_outputs import compute_outputs
from pfljax.algorithms.distillation import _gossip as gossip
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation, server_rows, tree
from pfljax.core.keys import derive
from pfljax.core.minibatches import rows
from pfljax.core.shuffle import index_shuffle
from pfljax.core.training import fit, reporting
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import AtLeastOne, Count, NotNegative, component

Subset = AtLeastOne | None  # None for all rows of the server


class Server(NamedTuple):
    """What clients know of each other's soft decisions."""

    z: Any  # f32[C, P, K], the consensus
    s: Any  # f32[C, P, K], as last sent
    heard: Any  # f32[C, P], 1 for a row of which a neighbour has sent
    rows: Any  # i32[R], of the coming round


class Message(NamedTuple):
    """What a client knows of the rows of this round."""

    z: Any  # f32[R, K]
    heard: Any  # f32[R]
    rows: Any  # i32[R]


@component
def d_distillation(
    task: Task,
    local: Local,
    *,
    rho: NotNegative = 1.0,
    graph: Literal["complete", "ring"] = "complete",
    distance: Literal["square", "kl"] = "square",
    subset: Subset = None,
    public_rows: Count = 1,
) -> Algorithm:
    """Builds D-Distillation; `rho` = 0 is local training, and so is a lone client.

    Args:
      task: the model.
      local: how a client trains.
      rho: the weight of the distance to the consensus.
      graph: who hears whom: all of all, or client k of k - 1 and k + 1.
      distance: "kl" is KL(z || s), of z clipped and normalised to a distribution.
      subset: rows of the server that a round is about; None for all.
      public_rows: rows of the server.

    Raises:
      ValueError: the server has no rows.
    """
    server_rows.require("d_distillation", public_rows)
    count = min(subset or public_rows, public_rows)

    def draw(key):
        return server_rows.draw_order(key, public_rows)[:count]

    def init(params, num_clients, key):
        shape = num_clients, public_rows
        nothing = jnp.zeros((*shape, task.num_classes))
        return Server(z=nothing, s=nothing, heard=jnp.zeros(shape), rows=draw(key))

    def aggregate(server, uploads, cohort):
        uploads, cohort = aggregation.gather(uploads, cohort)
        edges = gossip.edges(graph, cohort)
        return after_gossip(server, uploads, edges, cohort)._replace(
            rows=draw(cohort.key)
        )

    return alone(task, local)._replace(
        init=init,
        message=message,
        train=training(task, local, rho, DISTANCES[distance]),
        aggregate=aggregate,
        origin=lambda message, w, upload: tree.zeros(upload),
        uploads_by_client=True,
    )


def message(turn, server, w):
    """What client k has of the rows of this round."""
    z, heard = tree.row_or_zeros((server.z, server.heard), turn.id)
    return Message(z=z[server.rows], heard=heard[server.rows], rows=server.rows)


def training(task, local, rho, distance):
    """The `train` of local training, drawn to the consensus."""

    def pull(w, message, public, key):
        count = len(message.rows)
        # A random batch of them, all where they are few.
        first = jnp.arange(min(local.batch_size, count))
        chosen = index_shuffle(first, count, derive(key, "rows of the server"))
        z, heard, index = tree.take(message, chosen)
        logits = task.predict(w, rows(public, index, heard))
        return jnp.mean(heard * distance(z, logits))

    def train(turn, message, w, data):
        def objective(w, batch, key):
            loss = task.loss(w, batch, key)
            return loss + rho * pull(w, message, turn.public, key), loss

        def decisions(batch):
            return jax.nn.softmax(task.predict(w, batch))

        w, metrics = fit(task.loss, w, data, turn, local, reporting(objective))
        upload = compute_outputs(decisions, turn.public, message.rows, local.batch_size)
        return w, upload, metrics

    return train


def after_gossip(server, uploads, edges, cohort):
    """The server after the consensus step on its rows of this round."""
    known = tree.take((server.z, server.s), cohort.ids)
    z, s = (leaf[:, server.rows] for leaf in known)
    weights = gossip.metropolis(edges)
    corrected = z + uploads - s
    # An accelerator's default would round factors to a few bits.
    mixed = jnp.einsum("kj,jrc->krc", weights, corrected, precision="highest")
    hears = (edges.sum(1) > 0).astype(jnp.float32)
    at = aggregation.present_ids(cohort)[:, None], server.rows
    return server._replace(
        z=server.z.at[at].set(mixed, mode="drop"),
        s=server.s.at[at].set(uploads, mode="drop"),
        heard=server.heard.at[at].max(hears[:, None], mode="drop"),
    )


def square(z, logits):
    """Squared distance of each row's soft decision to z, f32[B]."""
    return jnp.sum(jnp.square(jax.nn.softmax(logits) - z), -1)


def kl(z, logits):
    """KL(z || softmax) of each row, f32[B]."""
    # A correction may leave the simplex, where KL has no meaning.
    positive = jnp.clip(z, 1e-6, 1)
    target = positive / positive.sum(-1, keepdims=True)
    return optax.losses.kl_divergence(jax.nn.log_softmax(logits), target)


DISTANCES = {"square": square, "kl": kl}
