"""SCAFFOLD: control variates correct the drift of local training.

Karimireddy et al., ICML 2020, https://arxiv.org/abs/1910.06378 (Algorithm 1).

    Server   x, c             Client  c_k, the control variate of this client
    Message  x, c             Upload  dy = y - x and dc = c_k+ - c_k

Local steps are y <- y - rate (g_k(y) - c_k + c). Then c_k+ is, by option I, the
gradient grad F_k(x) over all examples, or by option II
c_k - c + (x - y) / (K rate), after K steps. With the participants S out of N clients,
the server takes x <- x + server_lr mean dy and c <- c + |S| / N mean dc. Every client
is evaluated with x.
"""

from functools import partial
from typing import Literal, NamedTuple

import jax

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.factories import component
from pfljax.core.minibatches import steps_per_epoch
from pfljax.core.optimizers import learning_rate
from pfljax.core.ranges import Count, Positive
from pfljax.core.server_model import wrap_server
from pfljax.core.training import fit, full_gradient
from pfljax.core.types import Algorithm, Local, Params, Task, zero_origin


class Server(NamedTuple):
    """The global model and its control variate."""

    x: Params
    c: Params


class Upload(NamedTuple):
    """The changes of the model and of the client's control variate."""

    dy: Params
    dc: Params


@component
def scaffold(
    task: Task,
    local: Local,
    *,
    option: Literal["I", "II"] = "II",
    server_lr: Positive = 1.0,
    finetune: Count = 0,
) -> Algorithm:
    """Builds SCAFFOLD; its first round is FedAvg with uniform weights.

    It is meant for plain SGD: with momentum or weight decay, option II is no longer the
    mean gradient along the path.

    Args:
      option: how the control variate is updated: "I", by a gradient over all examples,
        or "II", from the path.
      server_lr: share of the mean change that the server takes.
      finetune: local steps before the evaluation; 0 for none.
    """
    slope_of = jax.value_and_grad(task.loss)

    def train(turn, server, c_k, data):
        x, c = server
        correction = tree.sub(c, c_k)

        def gradient(y, batch, key):
            value, grads = slope_of(y, batch, key)
            return value, tree.add(grads, correction)

        y, metrics = fit(task.loss, x, data, turn, local, gradient)
        dy = tree.sub(y, x)
        if option == "I":
            # In evaluation mode: a variate should not have the noise of dropout.
            _, c_new = full_gradient(task.loss, x, data, local.batch_size)
        else:
            path = turn.steps * learning_rate(local, turn.round)
            c_new = tree.axpy(1 / path, tree.sub(x, y), tree.sub(c_k, c))
        # Running statistics follow the batches: no variate corrects them.
        c_new = statistics.without(c_new)
        # Without steps the path is 0 and c_new is NaN.
        c_new = tree.where(turn.steps > 0, c_new, c_k)
        return c_new, Upload(dy=dy, dc=tree.sub(c_new, c_k)), metrics

    def work(steps, size, is_first):
        return steps + (steps_per_epoch(local, size) if option == "I" else 0)

    shared = fedavg(task, local, finetune=finetune)
    return wrap_server(shared, lambda server: server.x)._replace(
        init=lambda params, num_clients, key: Server(params, tree.zeros(params)),
        init_client=lambda params, client_id, key: tree.zeros(params),
        message=lambda turn, server, c_k: server,
        train=train,
        work=work,
        aggregate=partial(aggregate, server_lr),
        origin=zero_origin,
    )


def aggregate(server_lr, server, uploads, cohort):
    """x + server_lr mean dy and c + |S| / N mean dc, over the clients that reported."""
    dy = aggregation.mean(uploads.dy, aggregation.uniform(cohort))
    # A client that is drawn twice changes its c_k once.
    dc = aggregation.mean(uploads.dc, cohort.mask)
    # |S| / N keeps c the mean of all c_k, including those of absent clients.
    share = cohort.mask.sum() / cohort.num_clients
    move = statistics.scale(dy, server_lr)
    return Server(
        x=tree.add(server.x, move),
        c=tree.axpy(share, dc, server.c),
    )
