"""HeteroFL: clients train slices of different widths of one large model.

Diao, Ding, Tarokh, ICLR 2021, https://arxiv.org/abs/2010.01264.

    Server   W, the parameters of the largest model
    Client   nothing
    Message  w, the first channels of W, as many as the client's model has
    Upload   w_k, w after local training; Y_k, the classes of the client's examples

Every client's model is a slice of the largest (`_slices`). Local training minimises the
cross-entropy of logits that are set to 0 outside Y_k, with gradients clipped at the
norm `clip`. Each element of W becomes the uniform mean over the clients of the cohort
whose slices have it; in the output layer, the parameters of a class are averaged only
over clients with this class. Elements that no client has keep their values. The server
is evaluated with W, and client k with its slice of W and the same mask: a class outside
Y_k has the logit 0, so it wins if all others are negative, as in the paper.

Static batch normalisation: running statistics are not tracked in training. In a second
exchange the cohort of the round makes one pass over its examples with the new W, and
sends their statistics. Those of a slice are measured on the client's own examples when
it is evaluated. The scaler belongs to the model (`pfljax.models.heterofl_cnn`).

Differs from the paper, which makes the pass once before a test, over all clients; here
it is made in every round, over the cohort, and its message is the whole W for each
level. Levels are fixed, not drawn anew in each round. The authors' "Local" accuracy is
that of W, not of the slices, on the examples of each client.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from pfljax.algorithms._classes import class_counts
from pfljax.algorithms.distillation import _slices as slices
from pfljax.algorithms.distillation._batch_statistics import measure, measure_after
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, optimizers
from pfljax.core.communication import shapes_of_model
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.local_statistics import drop, unsent
from pfljax.core.losses import data_loss, mask_absent
from pfljax.core.ranges import Positive
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task


class Slice(NamedTuple):
    """A client's model, and the classes of its examples."""

    w: Params
    present: Any  # f32[K], 1 for a class of which it has examples


@component
def heterofl(
    task: Task,
    local: Local,
    *,
    mask: bool = True,
    clip: Positive = 1.0,
) -> Algorithm:
    """Builds HeteroFL; without `mask` all clients count as having all classes.

    With one level and a large `clip` it then is FedAvg with equal weights.

    Args:
      mask: whether logits of classes that a client lacks are 0.
      clip: largest norm of a gradient.

    Raises:
      ValueError: a model is no slice of the largest.
    """
    clipped = local._replace(optimizer=optimizers.clip(local.optimizer, clip))
    tasks = task.peers or (task,)
    shapes = [shapes_of_model(peer) for peer in tasks]
    number = slices.largest(shapes)
    whole = tasks[number]

    def init(params, num_clients, key):
        is_whole = task.number == number
        return params if is_whole else whole.init(derive(key, "largest"))

    def message(turn, server, client):
        return slices.cut(server, shapes[task.number])

    def classes(data):
        if not mask:
            return jnp.ones(task.num_classes)
        counts = class_counts(data, task.num_classes, local.batch_size)
        return (counts > 0).astype(jnp.float32)

    def personal(turn, server, client, data):
        w = measure(task, message(turn, server, client), data, turn, local)
        return Slice(w=w, present=classes(data))

    def predict(part, batch):
        return mask_absent(task.predict(part.w, batch), part.present)

    method = fedavg(task, local)._replace(
        classes=True,
        init=init,
        message=message,
        train=training(task, clipped, classes),
        aggregate=averaging(unsent(slices.class_axes(whole))),
        predict=predict,
        personal=personal,
        origin=lambda w, client, upload: Slice(w=w, present=None),
        architecture=task.number,
    )
    return measure_after(drop(method), whole, local)


def training(task, local, classes):
    """The `train` of a slice, with the cross-entropy over the client's own classes."""

    def train(turn, w, client, data):
        present = classes(data)

        def loss(w, batch, key):
            logits = task.logits(w, batch, key)
            return data_loss(task, mask_absent(logits, present), batch)

        w, metrics = fit(loss, w, data, turn, local)
        return client, Slice(w=w, present=present), metrics

    return train


def averaging(axes):
    """The `aggregate`: the mean of each element over the slices that have it."""

    def aggregate(server, uploads, cohort):
        stacks = []
        for number, senders in aggregation.senders(cohort).items():
            w, present = uploads[number]
            weight = aggregation.uniform(senders)
            stacks.append((w, slices.weights(w, weight, present, axes)))
        return slices.counted_mean(stacks, server)

    return aggregate
