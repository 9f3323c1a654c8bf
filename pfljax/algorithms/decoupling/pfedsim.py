"""pFedSim: clients with similar heads share their bodies.

Tan et al., 2023, https://arxiv.org/abs/2305.15706 (Algorithm 1).

    Server   w; w_k = (b_k, h_k) of every client k that has sent one after the warm-up;
             W, the similarities of clients
    Client   nothing
    Message  w, and after the warm-up (sum_j u_kj b_j / sum_j u_kj, h_k)
    Upload   w_k, after local training

The first warm_up * rounds rounds are those of FedAvg. After that, the server stores the
uploads, and u_kj = -log(1 - W_kj) with W_kk = 0.9999. For each pair of a cohort W_kj is
the mean over classes of the cosine of the rows of their heads, or 0 if that is
negative. It is 0 for pairs that have not met. Client k is evaluated with its stored
w_k, or with w before there is one.

Differs from published code, which takes the logarithm of 0 for clients of equal heads:
here no W_kj exceeds 0.9999.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, leaves, tree
from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, Share
from pfljax.core.types import Algorithm, Local, Params, Task

MOST = 0.9999  # of a similarity


class Server(NamedTuple):
    """The state of the server."""

    w: Params
    models: Params  # leaves [C, ...]
    is_stored: Any  # bool[C], whether a client has sent one since the warm-up
    similarity: Any  # f32[C, C], W


@component
def pfedsim(
    task: Task, local: Local, *, warm_up: Share = 0.5, rounds: AtLeastOne = 100
) -> Algorithm:
    """Builds pFedSim; `warm_up` = 1 is FedAvg.

    Args:
      warm_up: the share of the rounds that are FedAvg's.
    """
    in_head = leaves.of_kind(task, "head")
    last = jnp.floor(warm_up * rounds)

    def init(params, num_clients, key):
        models = tree.stack_copies(params, num_clients)
        nobody = jnp.zeros(num_clients, bool)
        return Server(params, models, nobody, jnp.zeros((num_clients, num_clients)))

    def own(turn, server):
        stored, model = tree.take_or((server.is_stored, server.models), turn.id)
        return stored, tree.where(stored, model, server.w)

    def message(turn, server, client):
        row = tree.take_or(server.similarity, turn.id)
        weight = -jnp.log1p(-row.at[turn.id].set(MOST, mode="drop"))
        stored, model = own(turn, server)
        body = aggregation.mean(tree.split(server.models, in_head)[1], weight)
        mixed = tree.merge(tree.split(model, in_head)[0], body)
        # A client without a stored model has met nobody.
        return tree.where(stored, mixed, server.w)

    def aggregate(server, uploads, cohort):
        mean = aggregation.mean(uploads, aggregation.by_examples(cohort))
        is_warm = cohort.round < last
        # In the warm-up nobody is stored: past the end, nothing is written.
        nobody = len(server.is_stored)
        ids = jnp.where(is_warm, nobody, aggregation.present_ids(cohort))
        met = server.similarity.at[ids[:, None], ids]
        return Server(
            tree.where(is_warm, mean, server.w),
            tree.put(server.models, ids, uploads),
            server.is_stored.at[ids].set(True, mode="drop"),
            met.set(similarities(task, uploads), mode="drop"),
        )

    return fedavg(task, local)._replace(
        init=init,
        message=message,
        aggregate=aggregate,
        server_model=lambda server: server.w,
        personal=lambda turn, server, client, data: own(turn, server)[1],
        newcomer=lambda turn, server, data: server.w,
        uploads_by_client=True,
        classes=True,
        parts=("body", "head"),
    )


def similarities(task, models):
    """The mean cosine of the rows of the heads of stacked models, f32[M, M]."""
    heads, _ = tree.split(tree.parameters(models), leaves.of_kind(task, "head"))
    kernels = [
        leaf.reshape(len(leaf), -1, task.num_classes)
        for leaf in jax.tree.leaves(heads)
        if leaf.ndim > 2 and leaf.shape[-1] == task.num_classes
    ]
    rows = jnp.concatenate(kernels, 1)
    lengths = jnp.sqrt(jnp.sum(rows**2, 1, keepdims=True))
    units = rows / jnp.where(lengths > 0, lengths, 1)
    cosines = jnp.einsum("iek,jek->ij", units, units, precision="highest")
    return jnp.clip(cosines / task.num_classes, 0, MOST)
