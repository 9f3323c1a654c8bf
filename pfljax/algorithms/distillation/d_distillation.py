"""D-Distillation: neighbours in a graph agree on soft decisions for public examples.

Bistritz, Mann, Bambos, NeurIPS 2020,
https://proceedings.neurips.cc/paper/2020/hash/fef6f971605336724b5e6c0c12dc2534-Abstract.html

    Server   z_k and s_k of every client k, for the public examples; for which of them a
             neighbour has sent a decision; R, the examples of the next round
    Client   w_k, the parameters of this client
    Message  z_k on R, for which of them a neighbour has sent a decision, R
    Upload   s_k' = softmax f(w_k; x) of each x in R, after local training

A soft decision is the vector of a client's class probabilities for an example. z_k is
client k's estimate of the mean decision of all clients. In each round, client k trains
on its own examples and towards z_k, and sends its new decisions to its neighbours:

    each step minimises  F_k(w_k) + rho mean_x |softmax f(w_k; x) - z_k(x)|^2,
    then, on R,          z_k <- sum_j W_kj (z_j + s_j' - s_j)  and  s_k <- s_k'

Here x is a batch of examples of R. One for which no neighbour has ever sent a decision
adds 0. The second line is a step of dynamic average consensus, which keeps
sum_k z_k = sum_k s_k. W are the Metropolis weights  1 / (1 + max(degree_k, degree_j))
of the edges between the participants of a round. Client k is evaluated with w_k. The
labels of the public examples are not used.

**A reconstruction.** The algorithm of the paper was not accessible: the distance, the
order of the two steps and the constants are chosen here to agree with what is published
about it. Its proof of convergence is not claimed to apply.

The paper has no server: its state here would lie with the clients, an upload would go
to each neighbour, and z_k need not be sent. The public examples are used in evaluation
mode: without dropout, and running statistics follow the client's own examples alone.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax.algorithms._example_outputs import compute_outputs
from pfljax.algorithms.distillation import _gossip as gossip
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation, public_examples, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.minibatches import take_examples
from pfljax.core.ranges import AtLeastOne, Count, NotNegative
from pfljax.core.shuffle import index_shuffle
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Local, Task, zero_origin

Subset = AtLeastOne | None  # None for all public examples


class Server(NamedTuple):
    """The soft decisions of all clients."""

    z: Any  # f32[C, P, K], the consensus
    s: Any  # f32[C, P, K], as last sent
    known: Any  # f32[C, P], 1 for an example for which a neighbour has sent a decision
    subset: Any  # i32[R], the examples of the next round


class Message(NamedTuple):
    """The consensus of a client on the examples of this round."""

    z: Any  # f32[R, K]
    known: Any  # f32[R]
    subset: Any  # i32[R]


@component
def d_distillation(
    task: Task,
    local: Local,
    *,
    rho: NotNegative = 1.0,
    graph: Literal["complete", "ring"] = "complete",
    distance: Literal["square", "kl"] = "square",
    subset: Subset = None,
    num_public: Count = 1,
) -> Algorithm:
    """Builds D-Distillation; `rho` = 0, or a single client, is local training.

    Args:
      task: the model.
      local: how a client trains.
      rho: weight of the distance to the consensus.
      graph: the neighbours of a client: all others ("complete"), or k - 1 and k + 1
        ("ring").
      distance: "square", or "kl" for KL(z || s) with z clipped and normalised.
      subset: number of public examples in a round; None for all.
      num_public: number of public examples.

    Raises:
      ValueError: there are no public examples.
    """
    public_examples.require_public("d_distillation", num_public)
    count = min(subset or num_public, num_public)

    def draw(key):
        return public_examples.draw_order(key, num_public)[:count]

    def init(params, num_clients, key):
        shape = num_clients, num_public
        nothing = jnp.zeros((*shape, task.num_classes))
        return Server(nothing, nothing, known=jnp.zeros(shape), subset=draw(key))

    def aggregate(server, uploads, cohort):
        uploads, cohort = aggregation.gather(uploads, cohort)
        server = update_consensus(server, uploads, gossip.edges(graph, cohort), cohort)
        return server._replace(subset=draw(cohort.key))

    return alone(task, local)._replace(
        classes=True,
        init=init,
        message=message,
        train=training(task, local, rho, DISTANCES[distance]),
        work=lambda steps, size, is_first: 2 * steps,
        aggregate=aggregate,
        origin=zero_origin,
        uploads_by_client=True,
    )


def message(turn, server, w):
    """The consensus of client k on the examples of this round."""
    z, known = tree.take_or((server.z, server.known), turn.id)
    return Message(z[server.subset], known[server.subset], server.subset)


def training(task, local, rho, distance):
    """The `train` of local training, pulled to the consensus."""

    def pull(w, message, public, key):
        count = len(message.subset)
        # A random batch of them, or all if they are few.
        first = jnp.arange(min(local.batch_size, count))
        chosen = index_shuffle(first, count, derive(key, "rows of the server"))
        z, known, index = tree.take(message, chosen)
        logits = task.predict(w, take_examples(public, index, known))
        return jnp.mean(known * distance(z, logits))

    def train(turn, message, w, data):
        def objective(w, batch, key):
            loss = task.loss(w, batch, key)
            return loss + rho * pull(w, message, turn.public, key), loss

        def decide(batch):
            return jax.nn.softmax(task.predict(w, batch))

        w, metrics = fit_objective(objective, w, data, turn, local)
        size = local.batch_size
        upload = compute_outputs(decide, turn.public, message.subset, size)
        return w, upload, metrics

    return train


def update_consensus(server, uploads, edges, cohort):
    """The server after the consensus step on the examples of this round."""
    of_cohort = tree.take((server.z, server.s), cohort.ids)
    z, s = (leaf[:, server.subset] for leaf in of_cohort)
    weights = gossip.metropolis(edges)
    # An accelerator's default would round factors to a few bits.
    mixed = jnp.einsum("kj,jrc->krc", weights, z + uploads - s, precision="highest")
    has_neighbour = (edges.sum(1) > 0).astype(jnp.float32)
    at = aggregation.present_ids(cohort)[:, None], server.subset
    return server._replace(
        z=server.z.at[at].set(mixed, mode="drop"),
        s=server.s.at[at].set(uploads, mode="drop"),
        known=server.known.at[at].max(has_neighbour[:, None], mode="drop"),
    )


def square(z, logits):
    """Squared distance of each example's soft decision to z, f32[B]."""
    return jnp.sum(jnp.square(jax.nn.softmax(logits) - z), -1)


def kl(z, logits):
    """KL(z || softmax) of each example, f32[B]."""
    # A correction may leave the simplex, outside of which KL has no meaning.
    positive = jnp.clip(z, 1e-6, 1)
    target = positive / positive.sum(-1, keepdims=True)
    return optax.losses.kl_divergence(jax.nn.log_softmax(logits), target)


DISTANCES = {"square": square, "kl": kl}
