"""FedGKT: clients and a larger network at the server teach each other.

He, Annavaram, Avestimehr, NeurIPS 2020, https://arxiv.org/abs/2007.14513 (Algorithm 1).

    Server   g, a network on features, and its optimizer; s_k, its logits for the
             examples of every client k, and which clients have them
    Client   w_k = (E_k, A_k), the body and head of this client
    Message  s_k, and whether there is one
    Upload   the features H, logits z = A(H) and label y of each of its examples, after
             training, in evaluation mode; and its turn in the server's order

A client trains towards the server's logits s of its examples x, and then sends their
features H = E(x). On these the server trains its own network g towards the client's
logits z, and keeps the logits of g as s for the next round:

    client   minimises  CE(A(E(x)), y) + alpha T^2 KL(s || A(E(x)))
    server   minimises  T^2 KL(z || g(H)) + alpha CE(g(H), y)

KL(a || b) is that of softmax(a / T) and softmax(b / T), with the temperature T. The
server makes `server_epochs` passes over one client after another and their examples in
order. s is g(H) in the last pass, before the step that uses H. Without s the weight of
KL is 0. Client k is evaluated with g(E_k(x)), even before it first takes part. Clients
may have different architectures whose features have the same shape. Labels and features
of all examples leave the client, and the server holds those of the whole cohort at
once.

Differs from the paper: g is a perceptron on the features as one vector, instead of the
upper stages of a ResNet on images of features. Clients' turns are drawn anew in every
round; otherwise clients with high ids would be favoured. A client's optimizer starts
afresh. Differs from the authors' code, which adds 1e-7 to the first distribution of a
KL.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from pfljax.algorithms._example_outputs import number_examples
from pfljax.algorithms._prototypes import width
from pfljax.algorithms.distillation import _sent_examples as sent_examples
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation, perceptron, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.losses import data_loss, divergence
from pfljax.core.optimizers import ServerRate, learning_rate
from pfljax.core.ranges import AtLeastOne, Count, NotNegative, Positive
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Local, Params, Task


class Answers(NamedTuple):
    """The logits of the server's network for the examples of a client."""

    s: Any  # f32[N, K]
    known: Any  # f32[], 1 once they have been computed


class Server(NamedTuple):
    """The network, and its answers."""

    g: Params
    moments: Any  # of its optimizer
    answers: Answers  # leaves [C, ...]


class Pair(NamedTuple):
    """A client's model, whose body is used, and the server's network."""

    w: Params
    g: Params


@component
def fedgkt(
    task: Task,
    local: Local,
    *,
    alpha: NotNegative = 1.0,
    temperature: Positive = 3.0,
    server_epochs: Count = 2,
    server_lr: ServerRate = None,
    hidden: AtLeastOne = 512,
    depth: Count = 2,
    max_examples: AtLeastOne = 1,
) -> Algorithm:
    """Builds FedGKT; `server_epochs` = 0 is local training.

    Args:
      task: the model.
      local: how a client trains; the server has the same batch size and optimizer.
      alpha: weight of KL for a client, and of CE for the server.
      temperature: the temperature T.
      server_epochs: passes of the server over all examples of the cohort.
      server_lr: learning rate of the server; None for that of local training.
      hidden: units of each hidden layer of g.
      depth: number of hidden layers; 0 is a linear g.
      max_examples: number of training examples of the largest client.
    """
    widths = (width(task), *[hidden] * depth, task.num_classes)
    at_server = local
    if server_lr is not None:
        at_server = local._replace(learning_rate=server_lr)

    def init(params, num_clients, key):
        g = perceptron.init(derive(key, "server's network"), widths)
        moments = at_server.optimizer(learning_rate(at_server, jnp.int32(0))).init(g)
        nothing = jnp.zeros((num_clients, max_examples, task.num_classes))
        answers = Answers(s=nothing, known=jnp.zeros(num_clients))
        return Server(g=g, moments=moments, answers=answers)

    def predict(pair, batch):
        return perceptron.apply(pair.g, task.features(pair.w, batch, None))

    return alone(task, local)._replace(
        classes=True,
        init=init,
        message=lambda turn, server, w: tree.take_or(server.answers, turn.id),
        train=training(task, local, alpha, temperature, max_examples),
        aggregate=answering(task, at_server, alpha, temperature, server_epochs),
        personal=lambda turn, server, w, data: Pair(w=w, g=server.g),
        predict=predict,
        origin=origin,
        parts=("body", "head"),
    )


def training(task, local, alpha, temperature, max_examples):
    """The `train` of a client, towards the server's logits for its examples."""

    def train(turn, message, w, data):
        def objective(w, batch, key):
            # The examples have their numbers as labels, by which s is found.
            number = batch.y
            labels = tree.take(data.examples.y, data.offset + number)
            batch = batch._replace(y=labels)
            logits = task.logits(w, batch, key)
            loss = data_loss(task, logits, batch)
            gap = soft_kl(tree.take(message.s, number), logits, batch, temperature)
            return loss + alpha * message.known * gap, loss

        w, metrics = fit_objective(objective, w, number_examples(data), turn, local)
        size = local.batch_size
        upload = sent_examples.from_client(task, w, data, turn, max_examples, size)
        return w, upload, metrics

    return train


def answering(task, local, alpha, temperature, epochs):
    """The `aggregate`: trains the server's network, and keeps its last logits."""

    def objective(g, batch, z):
        logits = perceptron.apply(g, batch.x)
        gap = soft_kl(z, logits, batch, temperature)
        return gap + alpha * data_loss(task, logits, batch), logits

    def aggregate(server, uploads, cohort):
        if epochs == 0:
            return server
        optimizer = local.optimizer(learning_rate(local, cohort.round))
        step = sent_examples.make_step(objective, optimizer)
        sent, ids = sent_examples.in_turn(*aggregation.gather(uploads, cohort))
        clients, count = sent.labels.shape
        parts = sent_examples.in_batches(sent, min(local.batch_size, count))
        start = server.g, server.moments
        (g, moments), s = sent_examples.over_epochs(step, start, parts, epochs)
        s = s.reshape(clients, -1, s.shape[-1])[:, :count]
        # The ids of absent clients are past the end, where nothing is written.
        answers = tree.put(server.answers, ids, Answers(s, jnp.ones(clients)))
        return Server(g=g, moments=moments, answers=answers)

    return aggregate


def soft_kl(target, logits, batch, temperature):
    """T^2 KL(target || logits), both at the temperature T; the target is constant."""
    gap = divergence(target / temperature, logits / temperature, batch)
    return temperature**2 * gap


def origin(message, w, upload):
    """Zeros: the outputs are made anew. The labels and the turn are no change."""
    return tree.zeros(upload)._replace(labels=None, turn=None)
