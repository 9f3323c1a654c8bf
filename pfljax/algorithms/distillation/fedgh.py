"""FedGH: the server trains a head on the mean features of the clients' classes.

Yi et al., ACM MM 2023, https://arxiv.org/abs/2303.13137 (Algorithm 1).

    Server   theta, the head      Client  phi_k, the body of this client
    Message  theta                Upload  R_k^j, and which classes j it has

Body and head are trained jointly from (phi_k, theta), and the trained head is dropped.
R_k^j is the mean of the features of all the client's examples of class j, by the
trained body in evaluation mode. The server takes `server_steps` steps
theta <- theta - server_lr grad mean_{k, j} CE(head(theta, R_k^j), j)  over all clients
and their classes, each with weight 1. Client k is evaluated with the newest theta on
phi_k.

Differs from the paper, where a step may use a batch of the pairs (k, j). Here it uses
them all, so that the order of clients does not matter.
"""

import jax
from flax.traverse_util import flatten_dict, unflatten_dict

from pfljax.algorithms import _prototypes as prototypes
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import tree
from pfljax.core.factories import component
from pfljax.core.optimizers import ServerRate, server_rate
from pfljax.core.ranges import Count
from pfljax.core.training import descend, fit
from pfljax.core.types import Algorithm, Local, Task


@component
def fedgh(
    task: Task,
    local: Local,
    *,
    server_steps: Count = 1,
    server_lr: ServerRate = None,
) -> Algorithm:
    """Builds FedGH; `server_steps` = 0 or `server_lr` = 0 never moves theta.

    Args:
      server_steps: steps of the server's head in each round; 0 never moves it.
      server_lr: rate of these steps; None for that of local training, as in the paper's
        proof.
    """

    def train(turn, theta, phi, data):
        w, metrics = fit(task.loss, join(phi, theta), data, turn, local)
        means = prototypes.from_client(task, w, data, local.batch_size)
        return part(task, w, "body"), prototypes.present(means), metrics

    def aggregate(theta, uploads, cohort):
        rate = server_rate(server_lr, local, cohort.round)
        # Only the head is applied, but the model takes all of its parameters.
        shapes = jax.eval_shape(task.init, cohort.key)
        no_body = tree.zeros(part(task, shapes, "body"))
        means, weight = prototypes.pairs(uploads, cohort)
        z = means.reshape(-1, *task.feature_shape)

        def loss(theta):
            logits = task.head(join(no_body, theta), z)
            return prototypes.pair_loss(logits, weight)

        return descend(jax.grad(loss), theta, server_steps, rate)

    return fedavg(task, local)._replace(
        classes=True,
        init=lambda params, num_clients, key: part(task, params, "head"),
        init_client=lambda params, client_id, key: part(task, params, "body"),
        train=train,
        aggregate=aggregate,
        personal=lambda turn, theta, phi, data: join(phi, theta),
        # A head alone is no model.
        server_model=None,
        origin=prototypes.no_origin,
        parts=("body", "head"),
    )


def part(task, params, name):
    """The parameters of the body or of the head, without None for the other part.

    `tree.split` would leave the names of the body's layers at the server, and these
    differ between architectures.
    """
    leaves = flatten_dict(params)
    group = flatten_dict(task.groups)
    return unflatten_dict(
        {path: leaves[path] for path in leaves if group[path] == name}
    )


def join(body, head):
    """The model of a body and a head."""
    return unflatten_dict(flatten_dict(body) | flatten_dict(head))
