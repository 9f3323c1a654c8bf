"""FedCAC: critical parameters are shared only among clients that have the same ones.

Wu et al., ICCV 2023, https://arxiv.org/abs/2309.11103 (Algorithm 1).

    Server   w; of every client k its critical parameters c_k, and a model u_k for these
    Client   nothing
    Message  u_k where c_k, else w    Upload  w_k and c_k, after local training

In each leaf, c_k are the share tau of the parameters with the largest
|(w_k - m_k) w_k|, where m_k is the message. Running statistics are never critical. The
overlap of clients i and j of a cohort is o_ij = 1 - |c_i - c_j|_1 / (2 |c_i|_1). In
round t = 1, 2, .., client j collaborates with i if o_ij is at least
mean o + t / beta (max o - mean o), over pairs of different clients. The server takes
w <- mean_k w_k, and u_i <- the mean of w_i and its collaborators' w_j. Client k is
evaluated with its next message, and with w before it first takes part.

Differs from published code, where c_k is a share of a leaf even if nothing of it has
moved, as far as |(w_k - m_k) w_k| exceeds 1e-20. PFLlib's default beta of 0 stops it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, Share
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task


class Server(NamedTuple):
    """The state of the server."""

    w: Params
    critical: Any  # bool, leaves [C, ...]
    custom: Params  # u, leaves [C, ...]


class Upload(NamedTuple):
    """Trained parameters, and which of them are critical."""

    w: Params
    critical: Any


@component
def fedcac(
    task: Task, local: Local, *, tau: Share = 0.5, beta: AtLeastOne = 100
) -> Algorithm:
    """Builds FedCAC; `tau` = 0 is uniform FedAvg.

    Args:
      tau: the share of critical parameters in each leaf.
      beta: the round from which on nobody collaborates.
    """

    def init(params, num_clients, key):
        custom = tree.stack_copies(params, num_clients)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, bool), custom)
        return Server(params, nothing, custom)

    def message(turn, server, client):
        own = tree.take_or((server.critical, server.custom), turn.id)
        return jax.tree.map(jnp.where, *own, server.w)

    def train(turn, first, client, data):
        w, metrics = fit(task.loss, first, data, turn, local)
        moved = jax.tree.map(lambda new, old: jnp.abs((new - old) * new), w, first)
        critical = statistics.by_kind(
            moved,
            parameter=lambda leaf: largest(leaf, tau),
            statistic=lambda leaf: jnp.zeros(leaf.shape, bool),
        )
        return client, Upload(w, critical), metrics

    def aggregate(server, uploads, cohort):
        # Of one type, so that several devices exchange them at once.
        critical = jax.tree.map(jnp.float32, uploads.critical)
        uploads = uploads._replace(critical=critical)
        uploads, cohort = aggregation.gather(uploads, cohort)
        weight = aggregation.uniform(cohort)
        joins = collaborators(uploads.critical, weight > 0, (cohort.round + 1) / beta)
        shares = joins * weight
        shares /= jnp.maximum(shares.sum(1, keepdims=True), 1)
        custom = jax.tree.map(
            lambda leaf: jnp.tensordot(shares, leaf, 1, precision="highest"), uploads.w
        )
        return Server(
            aggregation.mean(uploads.w, weight),
            aggregation.record(
                server.critical,
                jax.tree.map(lambda leaf: leaf > 0, uploads.critical),
                cohort,
            ),
            aggregation.record(server.custom, custom, cohort),
        )

    return fedavg(task, local)._replace(
        init=init,
        message=message,
        train=train,
        aggregate=aggregate,
        server_model=lambda server: server.w,
        personal=lambda turn, server, client, data: message(turn, server, client),
        origin=lambda first, client, upload: Upload(
            first, jax.tree.map(lambda leaf: None, upload.critical)
        ),
        uploads_by_client=True,
    )


def largest(values, share):
    """True at the share of largest values of a leaf, if they are above 0."""
    count = jnp.floor(share * values.size).astype(jnp.int32)
    ordered = jnp.sort(values.ravel())
    least = ordered[jnp.clip(values.size - count, 0, values.size - 1)]
    return (values >= least) & (values > 0) & (count > 0)


def collaborators(critical, known, progress):
    """Whether the client of a column helps that of a row, bool[M, M]."""
    count, both = jnp.float32(0), jnp.float32(0)
    for leaf in jax.tree.leaves(critical):
        rows = leaf.reshape(len(leaf), -1).astype(jnp.float32)
        count += rows.sum(1)
        both += jnp.matmul(rows, rows.T, precision="highest")
    # |c_i - c_j| = |c_i| + |c_j| - 2 |c_i and c_j|
    apart = count[:, None] + count - 2 * both
    overlap = 1 - apart / (2 * jnp.maximum(count, 1)[:, None])
    itself = jnp.eye(len(known), dtype=bool)
    pairs = known[:, None] & known & ~itself
    most = jnp.max(jnp.where(pairs, overlap, -jnp.inf))
    below = jnp.where(pairs, most - overlap, 0)
    mean = below.sum() / jnp.maximum(pairs.sum(), 1)
    # mean o + t / beta (max o - mean o), exact where all are equal.
    return (pairs & (below <= (1 - progress) * mean)) | itself
