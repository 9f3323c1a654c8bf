"""SCAFFOLD. Karimireddy et al., ICML 2020, https://arxiv.org/abs/1910.06378.

    Server   x, c             Client  c_k, this client's control variate
    Message  x, c             Upload  dy = y - x and dc = c_k+ - c_k
Algorithm 1: local steps  y <- y - rate (g_k(y) - c_k + c);  then option I
c_k+ = grad F_k(x)  on all rows, or option II  c_k+ = c_k - c + (x - y) / (K rate).
Server, over the |S| who took part:  x <- x + server_lr mean dy,  c <- c + |S| / N mean
dc.  Everybody is judged by x.
"""

from typing import Literal, NamedTuple

import jax

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.optimizers import learning_rate
from pfljax.core.server_model import wrap_server
from pfljax.core.training import fit, full_gradient
from pfljax.core.types import Algorithm, Local, Params, Task
from pfljax.registry import Count, NotNegative, component


class Server(NamedTuple):
    """Global model and control variate."""

    x: Params
    c: Params


class Upload(NamedTuple):
    """Changes of the model and of the client's control variate."""

    dy: Params
    dc: Params


@component
def scaffold(
    task: Task,
    local: Local,
    *,
    option: Literal["I", "II"] = "II",
    server_lr: NotNegative = 1.0,
    finetune: Count = 0,
) -> Algorithm:
    """Builds SCAFFOLD; the first round is FedAvg with uniform weights.

    Written for plain SGD: with momentum or weight decay option II is no longer the mean
    gradient along the path.

    Args:
      option: of the control variate: "I", a gradient over all rows, or "II", from the
        path.
      server_lr: share of the mean change that the server takes.
      finetune: local steps that precede evaluation; 0 for none.
    """
    shared = fedavg(task, local, finetune=finetune)
    slope_of = jax.value_and_grad(task.loss)

    def train(turn, server, c_k, data):
        x = server.x
        correction = tree.sub(server.c, c_k)

        def gradient(y, batch, key):
            value, grads = slope_of(y, batch, key)
            return value, tree.add(grads, correction)

        y, metrics = fit(task.loss, x, data, turn, local, gradient)
        dy = tree.sub(y, x)
        if option == "I":
            # In evaluation mode: a variate has no noise of dropout.
            _, c_new = full_gradient(task.loss, x, data, local.batch_size)
        else:
            path = turn.steps * learning_rate(local, turn.round)
            c_new = along_path(server, c_k, y, path)
        c_new = settle(c_new, c_k, turn.steps)
        dc = tree.sub(c_new, c_k)
        return c_new, Upload(dy=dy, dc=dc), metrics

    def aggregate(server, uploads, cohort):
        return average(server, uploads, cohort, server_lr)

    return wrap_server(shared, lambda server: server.x)._replace(
        init=lambda params, num_clients, key: Server(params, tree.zeros(params)),
        init_client=lambda params, client_id, key: tree.zeros(params),
        message=lambda turn, server, c_k: server,
        train=train,
        aggregate=aggregate,
        # dy and dc are changes already.
        origin=lambda server, c_k, upload: tree.zeros(upload),
    )


def along_path(server, c_k, y, path):
    """Option II: c_k - c + (x - y) / path, of which the quotient is the mean slope."""
    mean_slope = tree.scale(tree.sub(server.x, y), 1 / path)
    away = tree.sub(c_k, server.c)
    return tree.add(away, mean_slope)


def settle(c_new, c_k, steps):
    """c_k+ as the client keeps it: c_k stands where no step was taken."""
    # Running statistics follow the batches: no variate corrects them.
    c_new = statistics.without(c_new)
    # Without steps the path is 0 and c_new is NaN.
    return tree.where(steps > 0, c_new, c_k)


def average(server, uploads, cohort, server_lr):
    """x + server_lr mean dy and c + |S| / N mean dc, over those who reported."""
    reported = aggregation.uniform(cohort)
    mean = aggregation.mean(uploads, reported)
    # |S| / N: then c stays the mean of all c_k, also of those who rest.
    share = reported.sum() / cohort.num_clients
    move = statistics.scale(mean.dy, server_lr)
    return Server(
        x=tree.add(server.x, move),
        c=tree.axpy(share, mean.dc, server.c),
    )
