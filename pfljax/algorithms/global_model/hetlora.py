"""HetLoRA: low-rank adapters, whose rank each client has of its own.

Cho et al., EMNLP 2024, https://arxiv.org/abs/2401.06432.

    Server   A, B, the adapters of the largest rank, and what else is trained
    Client   nothing
    Message  the first r_k columns of A and rows of B, for a client of rank r_k
    Upload   A_k, B_k after local training

The server pads A_k and B_k with zeros to the largest rank, and takes

    (A, B) <- sum_k s_k (A_k, B_k) / sum_k s_k,    s_k = ||A_k B_k||_F

over all kernels. So a client whose adapters are small counts little. The rank of a
client is that of its model (`--models lora:rank=2 lora:rank=8`), and all models have
the same `scale`. With equal ranks it is FedIT, weighted by s_k. The paper's clients
also prune their ranks; here ranks stay.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.algorithms.distillation import _slices as slices
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.leaves import FACTORS
from pfljax.core.types import Algorithm, Local, Task


@component
def hetlora(task: Task, local: Local) -> Algorithm:
    """Builds HetLoRA.

    Raises:
      ValueError: the models differ in more than the rank of their adapters.
    """
    tasks = task.peers or (task,)
    shapes = [shapes_of_model(peer) for peer in tasks]
    number = slices.largest(shapes)

    def init(params, num_clients, key):
        if task.number == number:
            return params
        drawn = tasks[number].init(derive(key, "largest"))
        return drawn | {part: params[part] for part in params if part not in FACTORS}

    def message(turn, server, client):
        return slices.cut(server, shapes[task.number])

    def personal(turn, server, client, data):
        return message(turn, server, client)

    return fedavg(task, local)._replace(
        parts=("lora",),
        init=init,
        message=message,
        aggregate=aggregate,
        personal=personal,
        architecture=task.number,
    )


def aggregate(server, uploads, cohort):
    """The mean of padded uploads, weighted by the norms of their products."""
    present, norms = [], []
    stacks = aggregation.senders(cohort)
    gathered = {k: aggregation.gather(uploads[k], stacks[k]) for k in stacks}
    uploads = {number: upload for number, (upload, _) in gathered.items()}
    for number, (_, senders) in gathered.items():
        present.append(aggregation.uniform(senders))
        norms.append(product_norms(uploads[number]) * present[-1])
    # Before any B has moved, all products are 0.
    are_zero = sum(norm.sum() for norm in norms) == 0
    weights = [jnp.where(are_zero, *pair) for pair in zip(present, norms, strict=True)]
    total = tree.zeros(server)
    for number, weight in zip(stacks, weights, strict=True):
        summed = aggregation.weighted_sum(uploads[number], weight)
        total = slices.add(total, summed)
    return aggregation.over_weight(total, jnp.concatenate(weights))


def product_norms(uploads: Any) -> Any:
    """||A_m B_m||_F over all kernels, f32[M]."""

    product = partial(jnp.matmul, precision="highest")

    def square(a, b):
        # By matrices of rank x rank: ||A B||^2 is the trace of (A' A) (B B').
        return jnp.sum(product(a.mT, a) * product(b, b.mT), (1, 2))

    factors = (uploads.get(name, {}) for name in FACTORS)
    squares = jax.tree.leaves(jax.tree.map(square, *factors))
    some = jax.tree.leaves(uploads)[0]
    return jnp.sqrt(sum(squares, jnp.zeros(len(some))))
