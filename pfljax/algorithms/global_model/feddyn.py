"""FedDyn: a dynamic regulariser aligns the clients' optima with that of the server.

Acar et al., ICLR 2021, https://arxiv.org/abs/2111.04263 (Algorithm 1).

    Server   w, h             Client  g_k, the gradient of F_k at its last solution
    Message  w                Upload  w_k, the parameters after local training

Client k minimises  F_k(v) - <g_k, v> + alpha / 2 ||v - w||^2  from v = w, and then
takes g_k <- g_k - alpha (w_k - w). With the participants S out of C clients, the server
takes h <- h - (1 / C) sum_k (w_k - w) and then w <- mean w_k - h. Every client is
evaluated with w.

Here `h` is the paper's h divided by alpha, a change of the model, so that alpha may be
0. Both g_k and h start at 0.

Differs from the published code, which divides alpha by the client's share of the
examples and evaluates the mean of the last models of all clients.
"""

from typing import NamedTuple

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.factories import component
from pfljax.core.losses import proximal
from pfljax.core.ranges import Count, NotNegative
from pfljax.core.server_model import wrap_server
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task


class Server(NamedTuple):
    """The global model, and the mean over all clients of their summed changes."""

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
    """Builds FedDyn, whose only fixed points have a mean of all grad F_k of 0.

    With `alpha` = 0 clients train as in FedAvg, and the server moves away from their
    uniform mean by -h: with full participation, by the sum of all changes so far. The
    `finetune` steps minimise F_k alone.

    Args:
      alpha: weight of the dynamic regulariser; 0 trains as FedAvg does.
      finetune: local steps before the evaluation; 0 for none.
    """

    def train(turn, w, g, data):
        pull = proximal(w, alpha)

        def penalty(v):
            return pull(v) - tree.dot(g, v)

        w_k, metrics = fit(task.loss, w, data, turn, local, penalty=penalty)
        # Running statistics follow the batches and have no gradient.
        change = statistics.without(tree.sub(w_k, w))
        return tree.axpy(-alpha, change, g), w_k, metrics

    shared = fedavg(task, local, finetune=finetune)
    return wrap_server(shared, lambda server: server.w)._replace(
        init=lambda params, num_clients, key: Server(w=params, h=tree.zeros(params)),
        init_client=lambda params, client_id, key: tree.zeros(params),
        train=train,
        aggregate=aggregate,
    )


def aggregate(server, uploads, cohort):
    """The new h, and the mean of the uploads minus it."""
    mean = aggregation.mean(uploads, aggregation.uniform(cohort))
    # A client that is drawn twice changes its g_k once.
    once = aggregation.mean(uploads, cohort.mask)
    change = statistics.without(tree.sub(once, server.w))
    # |S| / C: the change of a client that does not take part is 0.
    share = cohort.mask.sum() / cohort.num_clients
    h = tree.axpy(-share, change, server.h)
    return Server(w=tree.sub(mean, h), h=h)
