"""FedGKT. He, Annavaram, Avestimehr, NeurIPS 2020, https://arxiv.org/abs/2007.14513.

    Server   g, a network on features, and its optimizer; s_k, what it says of each row
             of every client k, and for whom it has said so
    Client   w_k = (E_k, A_k), this client's own body and head
    Message  s_k, and whether there is one
    Upload   of each of its rows features H, logits z = A(H) and label y, after
             training, in evaluation mode; and its turn in the server's order
With T the temperature, KL(a || b) that of softmax(a / T) and softmax(b / T), a client
goes down  CE(A(E(x)), y) + alpha T^2 KL(s || A(E(x)))  and then the server, for
`server_epochs` over one client after another and their rows in order, goes down
T^2 KL(z || g(H)) + alpha CE(g(H), y)  (Algorithm 1). s is g(H) as it stood before the
step that H was in, in the last epoch. Without an answer KL weighs 0. Client k is judged
by g(E_k(x)), also before it ever took part. Clients of several architectures may take
part whose features have one shape. Labels and features of all rows leave the client;
the server holds those of the whole cohort at once.

Differs from the paper: g is a perceptron on the features as one vector, not the upper
stages of a ResNet on images of features. Clients' turns are drawn anew every round, for
else those of high numbers would be favoured. A client's optimizer starts afresh.
Differs from the authors' code: it adds 1e-7 to the first distribution of a KL.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from pfljax.algorithms._row_outputs import number_examples
from pfljax.algorithms.distillation import _sent_rows as sent_rows
from pfljax.algorithms.distillation._prototypes import width
from pfljax.algorithms.distillation.fedgh import ServerRate
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation, perceptron, tree
from pfljax.core.keys import derive
from pfljax.core.losses import cross_entropy, divergence
from pfljax.core.optimizers import learning_rate
from pfljax.core.training import fit, reporting
from pfljax.core.types import Algorithm, Local, Params, Task
from pfljax.registry import AtLeastOne, Count, NotNegative, Positive, component


class Answers(NamedTuple):
    """What the server's network says of a client's rows."""

    s: Any  # f32[N, K]
    known: Any  # f32[], 1 once it has said so


class Server(NamedTuple):
    """The network, and its answers."""

    g: Params
    moments: Any  # of its optimizer
    answers: Answers  # leaves [C, ...]


class Pair(NamedTuple):
    """The client's model, of which the body counts, and the server's network."""

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
    most_rows: AtLeastOne = 1,
) -> Algorithm:
    """Builds FedGKT; without `server_epochs` nobody is answered: local training.

    Args:
      task: the model.
      local: how a client trains, and the server's batches and optimizer.
      alpha: the weight of KL to a client, and of CE to the server.
      temperature: T.
      server_epochs: passes of the server over all rows of the cohort.
      server_lr: None for the learning rate of local training.
      hidden: units of each layer of g but the last.
      depth: of such layers; 0 is a linear g.
      most_rows: training rows of the largest client.
    """
    widths = (width(task), *[hidden] * depth, task.num_classes)
    at_server = local
    if server_lr is not None:
        at_server = local._replace(learning_rate=server_lr)

    def init(params, num_clients, key):
        g = perceptron.init(derive(key, "server's network"), widths)
        moments = at_server.optimizer(learning_rate(at_server, jnp.int32(0))).init(g)
        nothing = jnp.zeros((num_clients, most_rows, task.num_classes))
        answers = Answers(s=nothing, known=jnp.zeros(num_clients))
        return Server(g=g, moments=moments, answers=answers)

    def predict(judged, batch):
        z = task.features(judged.w, batch, None)
        return perceptron.apply(judged.g, z)

    return alone(task, local)._replace(
        init=init,
        message=lambda turn, server, w: tree.row_or_zeros(server.answers, turn.id),
        train=training(task, local, alpha, temperature, most_rows),
        aggregate=answering(at_server, alpha, temperature, server_epochs),
        personal=lambda turn, server, w, data: Pair(w=w, g=server.g),
        predict=predict,
        origin=origin,
        parts=("body", "head"),
    )


def training(task, local, alpha, temperature, most_rows):
    """The `train` of a client, which steps towards the answers to its rows."""

    def train(turn, message, w, data):
        def objective(w, batch, key):
            number = batch.y
            labels = tree.take(data.examples.y, data.offset + number)
            batch = batch._replace(y=labels)
            logits = task.logits(w, batch, key)
            loss = cross_entropy(logits, batch)
            gap = soft_kl(tree.take(message.s, number), logits, batch, temperature)
            return loss + alpha * message.known * gap, loss

        slope_of = reporting(objective)
        w, metrics = fit(task.loss, w, number_examples(data), turn, local, slope_of)
        size = local.batch_size
        return w, sent_rows.from_client(task, w, data, turn, most_rows, size), metrics

    return train


def answering(local, alpha, temperature, epochs):
    """The `aggregate`: the server's network learns, and answers in the last epoch."""

    def objective(g, batch, z):
        logits = perceptron.apply(g, batch.x)
        gap = soft_kl(z, logits, batch, temperature)
        return gap + alpha * cross_entropy(logits, batch), logits

    def aggregate(server, uploads, cohort):
        if epochs == 0:
            return server
        optimizer = local.optimizer(learning_rate(local, cohort.round))
        step = sent_rows.stepping(objective, optimizer)
        sent, ids = sent_rows.in_turn(*aggregation.gather(uploads, cohort))
        clients, rows = sent.labels.shape
        parts = sent_rows.in_batches(sent, min(local.batch_size, rows))
        start = server.g, server.moments
        (g, moments), s = sent_rows.over_epochs(step, start, parts, epochs)
        s = s.reshape(clients, -1, s.shape[-1])[:, :rows]
        # Past the end, where nothing is written: who did not report.
        answers = tree.put(server.answers, ids, Answers(s, jnp.ones(clients)))
        return Server(g=g, moments=moments, answers=answers)

    return aggregate


def soft_kl(target, logits, batch, temperature):
    """T^2 KL(target || logits), of both at the temperature T; targets are constant."""
    gap = divergence(target / temperature, logits / temperature, batch)
    return temperature**2 * gap


def origin(message, w, upload):
    """Zeros: what is sent is made anew. Labels and the turn are no change at all."""
    return tree.zeros(upload)._replace(labels=None, turn=None)
