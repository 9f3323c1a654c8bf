"""FedDyn. Acar et al., ICLR 2021, https://arxiv.org/abs/2111.04263 (Algorithm 1).

    Server   w, h             Client  g_k, the slope of F_k where it trained last
    Message  w                Upload  w_k, the params after local training
Client k minimises  F_k(v) - <g_k, v> + alpha / 2 ||v - w||^2  from v = w; then
g_k <- g_k - alpha (w_k - w). Server, over the |S| of C clients who took part:
h <- h - (1 / C) sum_k (w_k - w),  w <- mean w_k - h.  Everybody is judged by w.

`h` is the paper's over alpha, a change of the model: so alpha may be 0. g_k and h
begin at 0.

Differs from the published code, which divides alpha by the share of a client's rows and
judges the mean of all clients' last models.
"""

from typing import NamedTuple

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.losses import proximal
from pfljax.core.server_model import wrap_server
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task
from pfljax.registry import Count, NotNegative, component


class Server(NamedTuple):
    """Global model, and what all clients' changes add up to, a client's share of it."""

    w: Params
    h: Params


@component
def feddyn(
    task: Task,
    local: Local,
    *,
    alpha: NotNegative = 0.01,
    finetune: Count = 0,
) -> Algorithm:
    """Builds FedDyn; it rests only where the mean of all grad F_k is 0.

    `alpha` = 0 trains as FedAvg does, whose uniform mean the server then leaves by -h:
    with all clients, by the sum of all changes so far. `finetune` steps are of F_k
    alone.

    Args:
      alpha: weight of the dynamic regulariser; 0 trains as FedAvg does.
      finetune: local steps that precede evaluation; 0 for none.
    """

    def train(turn, w, g, data):
        pull = proximal(w, alpha)

        def penalty(v):
            return pull(v) - tree.dot(g, v)

        w_k, metrics = fit(task.loss, w, data, turn, local, penalty=penalty)
        # Running statistics follow the batches: they have no slope.
        change = statistics.without(tree.sub(w_k, w))
        return tree.axpy(-alpha, change, g), w_k, metrics

    shared = fedavg(task, local, finetune=finetune)
    return wrap_server(shared, lambda server: server.w)._replace(
        init=lambda params, num_clients, key: Server(w=params, h=tree.zeros(params)),
        init_client=lambda params, client_id, key: tree.zeros(params),
        train=train,
        aggregate=average,
    )


def average(server, uploads, cohort):
    """The mean of those who reported without the new h, and h."""
    reported = aggregation.uniform(cohort)
    mean = aggregation.mean(uploads, reported)
    change = statistics.without(tree.sub(mean, server.w))
    # |S| / C: h sums over rounds, so who rests counts with a change of 0.
    share = reported.sum() / cohort.num_clients
    h = tree.axpy(-share, change, server.h)
    return Server(w=tree.sub(mean, h), h=h)
