"""FedCL: clients hold the parameters that matter on examples of the server.

Yao, Sun, ICIP 2020, https://arxiv.org/abs/2005.12657.

    Server   w, and Omega, the importance of its parameters
    Client   nothing
    Message  w, Omega         Upload  w_k, the parameters after local training

Client k minimises  F_k(v) + lam sum_i Omega_i (v_i - w_i)^2  from v = w. The server
takes w <- sum_k n_k w_k / sum_k n_k, and then the importance of that w on its examples:

    elements  the Fisher diagonal: mean over the examples of (grad_i of the loss)^2
    tensors   one number for each tensor, (1 / n) sum over batches of 64 of the n
              examples of ||grad of the mean loss of the batch||^2

Omega is 0 in the first round, which is FedAvg. Every client is evaluated with w, or
after `finetune` local steps from w.

The authors' code takes "tensors" and lam = 0.5. By default, it lets each client compute
Omega on its own examples instead of the server. Its Omega of a tensor is far below the
sum of the elements', so lam is not comparable.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms import _fisher as fisher
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, public_examples, tree
from pfljax.core.factories import component
from pfljax.core.ranges import Count, NotNegative
from pfljax.core.server_model import wrap_server
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task

BATCH = 64  # examples of the server at once, as in the authors' code


class Server(NamedTuple):
    """The model and the importance of its parameters; this is also the message."""

    w: Params
    omega: Any  # of each element or tensor


@component
def fedcl(
    task: Task,
    local: Local,
    *,
    lam: NotNegative = 0.5,
    importance: Literal["elements", "tensors"] = "elements",
    finetune: Count = 0,
    num_public: Count = 1,
) -> Algorithm:
    """Builds FedCL; `lam` = 0 or one local step is FedAvg.

    Args:
      lam: weight of the pull towards the server's model; 0 is FedAvg.
      importance: of single "elements" of the parameters, or of whole "tensors".
      finetune: local steps before the evaluation; 0 for none.

    Raises:
      ValueError: there are no public examples.
    """
    public_examples.require_public("fedcl", num_public)
    squares, zero = IMPORTANCE[importance]

    def init(params, num_clients, key):
        return Server(w=params, omega=jax.tree.map(zero, params))

    def train(turn, message, client, data):
        w, omega = message

        def penalty(v):
            square = jax.tree.map(jnp.square, tree.sub(v, w))
            return lam * tree.dot(omega, square)

        w_k, metrics = fit(task.loss, w, data, turn, local, penalty=penalty)
        return client, w_k, metrics

    def aggregate(server, uploads, cohort):
        w = aggregation.mean(uploads, aggregation.by_examples(cohort))
        omega = fisher.diagonal(task.loss, w, cohort.public, BATCH, squares)
        return Server(w=w, omega=omega)

    shared = fedavg(task, local, finetune=finetune)
    return wrap_server(shared, lambda server: server.w)._replace(
        init=init,
        message=lambda turn, server, client: server,
        train=train,
        aggregate=aggregate,
        origin=lambda message, client, upload: message.w,
    )


def tensor_squares(loss, params, batch):
    """The squared norm of each tensor of the batch's gradient, over its examples."""
    squares = fisher.batch_squares(loss, params, batch)
    count = jnp.maximum(batch.mask.sum(), 1)
    return jax.tree.map(lambda leaf: leaf.sum() / count, squares)


# The squares of gradients, and the importance of a tensor before the first round.
IMPORTANCE = {
    "elements": (fisher.example_squares, jnp.zeros_like),
    "tensors": (tensor_squares, lambda tensor: jnp.float32(0)),
}
