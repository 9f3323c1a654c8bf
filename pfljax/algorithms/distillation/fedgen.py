"""FedGen: the server trains a generator of features, from which clients learn.

Zhu, Hong, Zhou, ICML 2021, https://arxiv.org/abs/2105.10056 (Algorithm 1).

    Server   h, the head; G, a generator of features, and its Adam; the labels it knows
    Client   b_k, the body of this client
    Message  h, G, labels     Upload  h_k, the head after local training, and counts c_k

With p the softmax outputs and r drawn from the labels, each step minimises
CE(h(b(x)), y) + alpha_t CE(h(G(r)), r) + beta_t KL(p of h(G(y)) || p of h(b(x))),
where G and the first p of KL are constants. The server trains G on the uploaded heads,
with r drawn from the labels of which a client has at least two examples, to minimise
sum_k c_k[r] / c[r] CE(h_k(G(r)), r) + exp(-mean_ab |noise_a - noise_b|^2 |G_a - G_b|).
Then it takes  h <- sum_k n_k h_k / sum_k n_k.  Client k is evaluated as in LG-FedAvg.
Before the first aggregation no label is known, and the terms of G have the weight 0.

The constants below are those of the authors' code, as are alpha_t = alpha 0.98^t, down
to 1e-4, and Adam's rate times 0.98^t. Differs from it: the noise is normal, as in the
paper; each example has its own weight c_k[r] / c[r], where the code's product of a
vector and a column leaves their mean; the terms of G count in all local epochs, and not
only in the first 20; and G always normalises by the batch. Heads see the features of G
in evaluation mode.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms._classes import class_counts
from pfljax.algorithms._prototypes import width
from pfljax.algorithms.decoupling.lg_fedavg import lg_fedavg
from pfljax.algorithms.distillation import _generator as generator
from pfljax.algorithms.distillation._generator import Generator, Trained
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.losses import data_loss, divergence
from pfljax.core.ranges import AtLeastOne, Count, NotNegative
from pfljax.core.server_model import wrap_server
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Array, Batch, Local, Params, Task

DECAY = 0.98  # of the rate and of both weights in each round
LEAST = 1e-4  # lower bound of a weight


class Message(NamedTuple):
    """The head, and the generator with its labels."""

    head: Params
    g: Generator
    labels: Array  # f32[K], 1 for a label that the generator knows


class Server(NamedTuple):
    """The head, and the generator with its labels and its Adam."""

    head: Params
    trained: Trained


class Upload(NamedTuple):
    """The trained head, and the client's number of examples of each label."""

    head: Params
    counts: Any  # f32[K]


@component
def fedgen(
    task: Task,
    local: Local,
    *,
    alpha: NotNegative = 10.0,
    beta: NotNegative = 10.0,
    hidden: AtLeastOne = 256,
    generator_lr: NotNegative = 3e-4,
    generator_steps: Count = 50,
) -> Algorithm:
    """Builds FedGen; `alpha` = `beta` = 0 is LG-FedAvg.

    Args:
      alpha: weight of the loss on generated features.
      beta: weight of the divergence from the logits on them.
      hidden: units of the generator's layer.
      generator_lr: rate of the generator's Adam.
      generator_steps: steps of the generator in each round.
    """
    shared = lg_fedavg(task, local)

    def init(params, num_clients, key):
        key = derive(key, "generator")
        trained = generator.init(key, task.num_classes, hidden, width(task))
        return Server(shared.init(params, num_clients, key), trained)

    def aggregate(server, uploads, cohort):
        # Gathered once, so that every step of the generator has all heads.
        sent, who = aggregation.gather(uploads, cohort)
        counts = sent.counts * aggregation.uniform(who)[:, None]

        def heads(z):
            return jax.vmap(head_logits, (None, 0, None))(task, sent.head, z)

        key = derive(cohort.key, "generator")
        rate = generator_lr * DECAY**cohort.round
        new = generator.train(server.trained, heads, counts, key, rate, generator_steps)
        head = shared.aggregate(server.head, uploads.head, cohort)
        return Server(head=head, trained=new)

    return wrap_server(shared, lambda server: server.head)._replace(
        classes=True,
        init=init,
        message=message,
        train=training(task, local, alpha, beta),
        aggregate=aggregate,
        # Counts are no change.
        origin=lambda message, body, upload: Upload(message.head, None),
    )


def message(turn, server, body):
    """The server without the moments of its Adam."""
    return Message(server.head, server.trained.g, server.trained.labels)


def training(task, local, alpha, beta):
    """The `train` of LG-FedAvg, with the terms of the generator.

    A head that was split off a model still has the structure of that model, with None
    for each leaf of the body. Where clients have different architectures, the server's
    head has another structure than the client's, with the same leaves.
    """
    in_head = tree.matches(task.groups, "head")  # True at each leaf of the head
    head_layout, _ = tree.split(task.groups, in_head)

    def train(turn, message, body, data):
        start = jnp.asarray([alpha, beta])
        decayed = start * DECAY**turn.round
        weights = jnp.maximum(decayed, jnp.minimum(start, LEAST))
        # 0 as long as the generator knows no label.
        weights *= jnp.max(message.labels)
        objective = guide(task, message, *weights)
        # For training the head has the structure of the client's model,
        head = tree.with_structure(message.head, head_layout)
        params = tree.merge(head, body)
        params, metrics = fit_objective(objective, params, data, turn, local)
        head, body = tree.split(params, in_head)
        counts = class_counts(data, task.num_classes, local.batch_size)
        # and for the upload that of the server's head again.
        head = tree.with_structure(head, message.head)
        return body, Upload(head=head, counts=counts), metrics

    return train


def guide(task, message, alpha, beta):
    """The objective of a client: CE of its examples, and the terms of the generator.

    It returns the sum, which is minimised, and CE alone, which is the metric "loss".
    """

    def objective(params, batch, key):
        keys = jax.random.split(derive(key, "generator"), 3)
        logits = task.logits(params, batch, key)
        loss = data_loss(task, logits, batch)
        r = generator.draw_labels(message.labels, keys[0], len(batch.y))
        # Both kinds of labels at once: this halves the compile time.
        labels = jnp.stack([r, batch.y])
        # The examples that pad a batch are not among those that normalise it.
        masks = jnp.stack([jnp.ones_like(batch.mask), batch.mask])
        draw = jax.vmap(generator.draw, (None, 0, 0, 0))
        drawn = draw(message.g, labels, keys[1:], masks)
        classify = jax.vmap(head_logits, (None, None, 0))
        for_r, for_y = classify(task, params, drawn.z)
        generated = data_loss(task, for_r, Batch.full(drawn.z[0], r))
        gap = divergence(for_y, logits, batch)
        return loss + alpha * generated + beta * gap, loss

    return objective


def head_logits(task, params, z):
    """Logits [B, K] of generated features z [B, e], in evaluation mode."""
    return task.head(params, z.reshape(-1, *task.feature_shape))
