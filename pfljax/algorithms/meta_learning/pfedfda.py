"""pFedFDA: clients classify by Gaussians of features, between own and shared ones.

McLaughlin, Su, NeurIPS 2024, https://arxiv.org/abs/2411.00329 (Algorithm 1).

    Server   b, the body; mu_j of each class j and Sigma, the Gaussians of its features
    Client   nothing
    Message  b, mu, Sigma     Upload  b_k, mu_k, Sigma_k

A model is a body under the linear discriminant of Gaussians, with the client's shares
of the classes (`_discriminant`). Client k takes its steps with b under the fixed head
of the received mu and Sigma. It then estimates own Gaussians from the features of its
examples, m_j and C, where m_j is mu_j for classes that it lacks, and C has `ridge` I
added to the scatter of the features around m over n_k - 1. It sends

    mu_kj = beta_1 m_j + (1 - beta_1) mu_j,  Sigma_k = beta_2 C + (1 - beta_2) Sigma

The beta have the least cross-entropy over two folds of the examples, each classified by
the Gaussians of the other. The server takes means weighted by n_k. Every client is
evaluated with the newest b, under the head of mu_k and Sigma_k for that b.

Differs from the paper: the beta are the best of a grid of step 0.1 and not of L-BFGS,
and the features are those of the trained body. The authors' code keeps the features of
each step, and has a ridge of 1. In FL-bench, mu and Sigma stay random in training.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms._classes import class_counts
from pfljax.algorithms._example_outputs import compute_outputs
from pfljax.algorithms._prototypes import BATCH, width
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.meta_learning import _discriminant as discriminant
from pfljax.algorithms.meta_learning._discriminant import Gaussians, Head
from pfljax.core import tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.losses import data_loss
from pfljax.core.ranges import AtLeastOne, Positive
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Batch, Local, Params, Task

LEAST = 1e-4  # added to the share of a class


class Shared(NamedTuple):
    """The server's state, a message or an upload."""

    body: Params
    gaussians: Gaussians


class Model(NamedTuple):
    """What a client predicts with."""

    body: Params
    head: Head


@component
def pfedfda(
    task: Task, local: Local, *, ridge: Positive = 1.0, max_examples: AtLeastOne = 1
) -> Algorithm:
    """Builds pFedFDA.

    Args:
      ridge: added to the variances of a client.
      max_examples: number of training examples of the largest client.
    """
    in_body = tree.matches(task.groups, "body")

    def features(body, batch, key=None):
        # The model takes all of its parameters, although its head is not applied.
        shapes = jax.eval_shape(task.init, jax.random.key(0))
        no_head = tree.zeros(tree.split(shapes, in_body)[1])
        z = task.features(tree.merge(body, no_head), batch, key)
        return z.reshape(len(z), -1)

    def class_shares(data):
        counts = class_counts(data, task.num_classes, local.batch_size)
        shares = counts / jnp.maximum(counts.sum(), 1) + LEAST
        return shares / shares.sum()

    def adapt(shared, data):
        """The client's Gaussians for this body."""
        every = jnp.arange(max_examples)
        index = jnp.minimum(every, jnp.maximum(data.size - 1, 0))

        def value(batch):
            return features(shared.body, batch), batch.y

        z, y = compute_outputs(value, data, index, max(local.batch_size, BATCH))
        rows = Batch(z, y, (every < data.size).astype(jnp.float32))
        known, shares = shared.gaussians, class_shares(data)
        return discriminant.adapt(task, rows, known, shares, ridge)

    def train(turn, shared, client, data):
        head = discriminant.discriminant(shared.gaussians, class_shares(data))

        def loss(body, batch, key):
            outputs = discriminant.logits(head, features(body, batch, key))
            return data_loss(task, outputs, batch)

        body, metrics = fit(loss, shared.body, data, turn, local)
        shared = shared._replace(body=body)
        return client, shared._replace(gaussians=adapt(shared, data)), metrics

    def init(params, num_clients, key):
        size = width(task)
        mean = jax.random.uniform(derive(key, "means"), (task.num_classes, size))
        body, _ = tree.split(params, in_body)
        return Shared(body, Gaussians(mean, jnp.eye(size)))

    def personal(turn, shared, client, data):
        gaussians = adapt(shared, data)
        head = discriminant.discriminant(gaussians, class_shares(data))
        return Model(shared.body, head)

    return fedavg(task, local)._replace(
        classes=True,
        init=init,
        train=train,
        personal=personal,
        predict=lambda model, batch: discriminant.logits(
            model.head, features(model.body, batch)
        ),
        server_model=None,
        parts=("body",),
    )
