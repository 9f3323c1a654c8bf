"""APPLE. Luo, Wu, IJCAI 2022, https://arxiv.org/abs/2110.08394 (Algorithm 1).

    Server   the core model w_j of every client j, as last sent; p_k, the weights of all
             cores in the model of each client k
    Client   w_k, this client's own core
    Message  all cores w_j, and p_k
    Upload   w_k and p_k
Client k's model is  v_k = sum_j p_kj w_j,  and it is judged by it. With the others'
cores fixed, each step moves, both from the values before it,
w_k by p_kk grad F_k(v_k), and p_kj by <grad F_k(v_k), w_j> + lam_r mu (p_kj - 1 / C).
p_kj begins at 1 / C, and is any number. In round r of R, lam_r is
(cos(pi r / L) + 1) / 2 below L = `span` R, and 0 from there.

`local` steps the core; p_k goes by plain steps of `weight_lr`. A core of a client that
never sent is the first model. Who is no client of the run has the mean of all cores.

Differs from the paper: all cores are sent in every round, and p_k lies with the server,
which knows how many clients there are. The published code multiplies the core's
learning rate by C, for p_kk is about 1 / C: here that is up to `local`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation, tree
from pfljax.core.optimizers import beside
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task
from pfljax.registry import AtLeastOne, NotNegative, Share, component


class Server(NamedTuple):
    """The cores of all clients, and their weights; a message has those of one."""

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
) -> Algorithm:
    """Builds APPLE; of one client, `weight_lr` = 0 is local training.

    Args:
      task: the model.
      local: how a client trains its core.
      weight_lr: the step of p_k; 0 leaves it as it begins.
      mu: the pull of p_k to where it began.
      span: the share of the rounds over which that pull fades.
      rounds: of the run.
    """
    slope_of = jax.value_and_grad(task.loss)

    def plain(rate):
        return optax.sgd(weight_lr)

    def train(turn, message, w, data):
        pull = mu * fading(turn.round, span * rounds)

        def gradient(params, batch, key):
            w, p = params
            v = mixture(message.cores, p, w, turn.id)
            value, slope = slope_of(v, batch, key)
            towards = affinity.inner_products(message.cores, slope)
            towards = towards.at[turn.id].set(tree.dot(w, slope), mode="drop")
            slope_p = towards + pull * (p - 1 / turn.num_clients)
            slope_w = tree.scale(slope, own_weight(p, turn.id))
            return value, (slope_w, slope_p)

        stepped = beside(local, ("model", "other"), plain)
        start = (w, message.p)
        (w, p), metrics = fit(task.loss, start, data, turn, stepped, gradient)
        return w, Upload(w, p), metrics

    def personal(turn, server, w, data):
        return mixture(server.cores, client_weights(server, turn.id), w, turn.id)

    return alone(task, local)._replace(
        init=init,
        message=message,
        train=train,
        aggregate=receive,
        personal=personal,
        origin=lambda message, w, upload: Upload(w, message.p),
        uploads_by_client=True,
    )


def init(params, num_clients, key):
    """Equal cores, in equal parts."""
    cores = affinity.first_models(params, num_clients).params
    p = jnp.full((num_clients, num_clients), 1 / num_clients)
    return Server(cores, p)


def message(turn, server, w):
    """All cores, and p_k."""
    return Server(server.cores, client_weights(server, turn.id))


def client_weights(server, client_id):
    """p_k, f32[C]; equal parts for a client of no run."""
    equal = 1 / len(server.p)
    return server.p.at[client_id].get(mode="fill", fill_value=equal)


def own_weight(p, client_id):
    """p_kk, f32[]; 0 for a client of no run, whose core is none of them."""
    return p.at[client_id].get(mode="fill", fill_value=0)


def mixture(cores, p, w, client_id):
    """sum_j p_j w_j, where the client's own core is `w`."""
    # Not by a copy of all cores with its own in it: each client would have one.
    others = p.at[client_id].set(0, mode="drop")
    total = aggregation.weighted_sum(cores, others)
    return tree.axpy(own_weight(p, client_id), w, total)


def fading(round_, length):
    """lam_r: from 1 to 0 as half a cosine over `length` rounds, and 0 after them."""
    along = round_ / jnp.maximum(length, 1e-6)
    return jnp.where(along < 1, (jnp.cos(jnp.pi * along) + 1) / 2, 0)


def receive(server, uploads, cohort):
    """The server with the cores and weights of who reported."""
    ids = aggregation.present_ids(cohort)
    cores, p = tree.put((server.cores, server.p), ids, (uploads.w, uploads.p))
    return Server(cores, p)
