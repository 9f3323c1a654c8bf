"""APPLE: clients learn how to weight the models of all clients in their own.

Luo, Wu, IJCAI 2022, https://arxiv.org/abs/2110.08394 (Algorithm 1).

    Server   the core model w_j of every client j, as last sent; p_k, the weights of all
             cores in the model of each client k
    Client   w_k, the core of this client
    Message  all cores w_j, and p_k
    Upload   w_k and p_k

Client k's model is  v_k = sum_j p_kj w_j,  with which it is evaluated. With the cores
of the others fixed, each step moves, both from the values before it, w_k by
p_kk grad F_k(v_k), and p_kj by <grad F_k(v_k), w_j> + lam_r mu (p_kj - n_j / n). The
weights p_kj start at n_j / n, the share of client j in all training examples, and may
be any numbers. In round r of R, lam_r is (cos(pi r / L) + 1) / 2 below L = `span` R,
and 0 from there on.

`local` steps the core, and plain steps of `weight_lr` change p_k. The core of a client
that never sent one is the first model. A client that is not part of the run has the
mean of all cores, weighted by n_j / n.

Differs from the paper: all cores are sent in every round, and the server keeps p_k,
since it knows how many clients there are. The authors' code steps the core and p_k by
one SGD with momentum, in two groups with rates of their own, and multiplies the rate of
the core by C, because p_kk is about 1 / C. Here the core's rate and momentum are up to
`local`, and p_k has no momentum.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.optimizers import beside
from pfljax.core.ranges import AtLeastOne, NotNegative, Share
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task


class Server(NamedTuple):
    """The cores of all clients, and all weights; a message has p_k alone."""

    cores: Params  # leaves [C, ...]
    p: Any  # f32[C, C], in a message f32[C]


class Upload(NamedTuple):
    """A client's core and weights after training."""

    w: Params
    p: Any


@component
def apple(
    task: Task,
    local: Local,
    *,
    weight_lr: NotNegative = 0.01,
    mu: NotNegative = 0.1,
    span: Share = 0.2,
    rounds: AtLeastOne = 1,
    sizes: Sequence[int] = (),
) -> Algorithm:
    """Builds APPLE; with one client, `weight_lr` = 0 is local training.

    Args:
      task: the model.
      local: how a client trains its core.
      weight_lr: step size of p_k; 0 keeps its first value.
      mu: pull of p_k to its first value.
      span: share of the rounds over which that pull fades.
      rounds: number of rounds of the run.
      sizes: n_j, the training examples of each client; equal by default.
    """
    slope_of = jax.value_and_grad(task.loss)

    def shares(num_clients):
        counts = jnp.asarray(sizes or (1,) * num_clients, jnp.float32)
        return counts / counts.sum()

    def init(params, num_clients, key):
        cores = affinity.first_models(params, num_clients).params
        return Server(cores, jnp.tile(shares(num_clients), (num_clients, 1)))

    def message(turn, server, w):
        # A client that is not part of the run has no row.
        first = shares(len(server.p))
        p_k = jnp.where(turn.id < len(first), tree.take_or(server.p, turn.id), first)
        return Server(server.cores, p_k)

    def train(turn, message, w, data):
        pull = mu * fading(turn.round, span * rounds)

        def gradient(params, batch, key):
            w, p = params
            v = mixture(message.cores, p, w, turn.id)
            value, slope = slope_of(v, batch, key)
            towards = affinity.inner_products(message.cores, slope)
            towards = towards.at[turn.id].set(tree.dot(w, slope), mode="drop")
            slope_p = towards + pull * (p - shares(len(p)))
            slope_w = tree.scale(slope, tree.take_or(p, turn.id))
            return value, (slope_w, slope_p)

        labels = "model", "other"
        stepped = beside(local, labels, lambda rate: optax.sgd(weight_lr))
        start = (w, message.p)
        (w, p), metrics = fit(task.loss, start, data, turn, stepped, gradient)
        return w, Upload(w, p), metrics

    def personal(turn, server, w, data):
        return mixture(*message(turn, server, w), w, turn.id)

    return alone(task, local)._replace(
        init=init,
        message=message,
        train=train,
        aggregate=aggregate,
        personal=personal,
        origin=lambda message, w, upload: Upload(w, message.p),
        uploads_by_client=True,
    )


def mixture(cores, p, w, client_id):
    """sum_j p_j w_j, where the client's own core is `w`."""
    # Not with `w` put into a copy of all cores: each client would have such a copy.
    others = p.at[client_id].set(0, mode="drop")
    total = aggregation.weighted_sum(cores, others)
    # A client that is not part of the run has no core: its weight is 0.
    return tree.axpy(tree.take_or(p, client_id), w, total)


def fading(round_, length):
    """lam_r: from 1 to 0 as half a cosine over `length` rounds, and then 0."""
    along = round_ / jnp.maximum(length, 1e-6)
    return jnp.where(along < 1, (jnp.cos(jnp.pi * along) + 1) / 2, 0)


def aggregate(server, uploads, cohort):
    """The server with the cores and weights of the clients that reported."""
    return Server(*aggregation.record(tuple(server), tuple(uploads), cohort))
