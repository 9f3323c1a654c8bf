"""SCAFFOLD. Karimireddy et al., ICML 2020, https://arxiv.org/abs/1910.06378.

    Server   x, c             Client  c_k, this client's control variate
    Message  x, c             Upload  dy = y - x and dc = c_k+ - c_k
Algorithm 1: local steps  y <- y - rate (g_k(y) - c_k + c);  then option I
c_k+ = grad F_k(x)  on all rows, or option II  c_k+ = c_k - c + (x - y) / (K rate).
Server, over the |S| who took part:  x <- x + server_lr mean dy,  c <- c + |S| / N mean
dc.  Everybody is judged by x.
"""

from typing import NamedTuple

import jax

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.training import finetuned, fit, full_gradient, learning_rate
from pfljax.core.types import Algorithm, Local, Params, Task
from pfljax.registry import Count, NotNegative


class Server(NamedTuple):
    """Global model and control variate."""

    x: Params
    c: Params


class Upload(NamedTuple):
    """Changes of the model and of the client's control variate."""

    dy: Params
    dc: Params


def scaffold(
    task: Task,
    local: Local,
    *,
    option: str = "II",
    server_lr: NotNegative = 1.0,
    finetune: Count = 0,
) -> Algorithm:
    """Builds SCAFFOLD; the first round is FedAvg with uniform weights.

    Written for plain SGD: with momentum or weight decay option II is no longer the mean
    gradient along the path.
    """
    if option not in ("I", "II"):
        raise ValueError(f"option is {option!r}; known: 'I', 'II'")
    shared = fedavg(task, local, finetune=finetune)

    def train(turn, server, c_k, data):
        correction = tree.sub(server.c, c_k)

        def corrected(*args):
            value, grads = jax.value_and_grad(task.loss)(*args)
            return value, tree.add(grads, correction)

        y, metrics = fit(task.loss, server.x, data, turn, local, corrected)
        if option == "I":
            size = local.batch_size
            _, c_new = full_gradient(task.loss, server.x, data, size)
        else:
            path = turn.steps * learning_rate(local, turn.round)
            mean_step = tree.scale(tree.sub(server.x, y), 1 / path)
            c_new = tree.add(tree.sub(c_k, server.c), mean_step)
        # Running statistics follow the batches: no variate corrects them.
        c_new = statistics.without(c_new)
        c_new = tree.where(turn.steps > 0, c_new, c_k)
        return c_new, Upload(tree.sub(y, server.x), tree.sub(c_new, c_k)), metrics

    def personal(turn, server, c_k, data):
        return finetuned(task.loss, server.x, data, turn, local, finetune)

    return shared._replace(
        init=lambda params, num_clients, key: Server(params, tree.zeros(params)),
        init_client=lambda params, client_id, key: tree.zeros(params),
        message=lambda turn, server, c_k: server,
        train=train,
        aggregate=lambda server, uploads, cohort: averaged(
            server, uploads, cohort, server_lr
        ),
        personal=personal if finetune else None,
        server_model=lambda server: server.x,
    )


def averaged(server, uploads, cohort, server_lr):
    """x + server_lr mean dy and c + |S| / N mean dc, over those who reported."""
    reported = cohort.draws * cohort.mask
    mean = aggregation.mean(uploads, reported)
    share = reported.sum() / cohort.num_clients
    x = tree.add(server.x, statistics.scale(mean.dy, server_lr))
    return Server(x, tree.axpy(share, mean.dc, server.c))
