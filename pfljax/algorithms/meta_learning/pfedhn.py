"""pFedHN: a hypernetwork at the server generates the model of each client.

Shamsian et al., ICML 2021, https://arxiv.org/abs/2103.04628 (Algorithm 1).

    Server   h, a hypernetwork; v_k, an embedding of every client; their optimizer
    Client   nothing; with `personal_head` (pFedHN-PC) the head of this client
    Message  theta_k = h(v_k)
    Upload   d_k = theta_k - theta_k', where theta_k' is theta_k after local training

The server minimises  mean_k <h(v_k), d_k>  by one step of its optimizer, with d_k
constant: the gradients are  (d theta_k / d h)^T d_k  and  (d theta_k / d v_k)^T d_k.
A client never sees h or v_k, and is evaluated with h(v_k). With `personal_head`,
theta_k is the body alone, and body and head are trained jointly.

A client that never took part starts from the mean of all v, and takes `adapt` such
exchanges, in which only v and its head are stepped, v by steps of `server_lr`.

In the paper one client takes part in a round. With C clients, v has 1 + C / 4 numbers,
at most `hidden`, as in the authors' code. As there, the optimizer steps all v: those of
absent clients have the gradient 0, and momentum moves them. Differs from that code: h
starts near the first parameters, and the server has neither weight decay nor clipping.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.meta_learning import _hypernetwork as hypernetwork
from pfljax.algorithms.meta_learning._hypernetwork import Hypernetwork
from pfljax.core import aggregation, server_step, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.ranges import AtLeastOne, Count, Positive
from pfljax.core.server_step import Optimized
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task, zero_origin


class Learned(NamedTuple):
    """The parameters that the server learns."""

    h: Hypernetwork
    v: Any  # f32[C, e]


class Server(NamedTuple):
    """The learned parameters and their optimizer, and the head of newcomers."""

    learned: Optimized  # of Learned
    head: Params  # None at every leaf without `personal_head`


@component
def pfedhn(
    task: Task,
    local: Local,
    *,
    server_lr: Positive = 0.01,
    server_optimizer: str = "sgd:momentum=0.9",
    hidden: AtLeastOne = 100,
    personal_head: bool = False,
    adapt: Count = 0,
) -> Algorithm:
    """Builds pFedHN; with constant h, by SGD of rate 1, it is uniform FedAvg.

    Args:
      server_lr: rate of the server's optimizer unless that sets its own.
      hidden: units of the hypernetwork's layers.
      personal_head: clients keep their heads.
      adapt: steps of a newcomer's embedding; 0 for none.

    Raises:
      ValueError: the server's optimizer is unknown.
    """
    optimizer = server_step.by_name(server_optimizer, server_lr)
    in_head = tree.matches(task.groups, "head")
    # Without a personal head the server generates all leaves.
    is_learned = jax.tree.map(lambda head: not (personal_head and head), in_head)

    def init(params, num_clients, key):
        first, head = tree.split(params, is_learned)
        size = min(1 + num_clients // 4, hidden)
        h = hypernetwork.init(derive(key, "hypernetwork"), size, hidden, first)
        v = jax.random.normal(derive(key, "embeddings"), (num_clients, size))
        return Server(server_step.first(optimizer, Learned(h, v)), head)

    def personal(turn, server, head, data):
        return tree.merge(message(turn, server, head), head)

    train = training(task, local, is_learned)
    return fedavg(task, local)._replace(
        init=init,
        init_client=lambda params, client_id, key: tree.split(params, is_learned)[1],
        message=message,
        train=train,
        aggregate=partial(step, optimizer),
        server_model=None,
        personal=personal,
        newcomer=joining(train, server_lr, adapt),
        parts=("body", "head") if personal_head else (),
        origin=zero_origin,
        uploads_by_client=True,
    )


def message(turn, server, head):
    """theta_k = h(v_k); h(0) for a client that is not part of the run."""
    h, v = server.learned.w
    return hypernetwork.apply(h, tree.take_or(v, turn.id))


def training(task, local, is_learned):
    """The `train` of a model whose leaves in `is_learned` come from the server."""

    def train(turn, theta, head, data):
        params = tree.merge(theta, head)
        params, metrics = fit(task.loss, params, data, turn, local)
        trained, head = tree.split(params, is_learned)
        return head, tree.sub(theta, trained), metrics

    return train


def joining(train, rate, exchanges):
    """The `newcomer` that trains an embedding of its own, and its head."""

    def newcomer(turn, server, data):
        h, v = server.learned.w

        def exchange(index, state):
            v, head = state
            theta, pull = jax.vjp(partial(hypernetwork.apply, h), v)
            key = jax.random.fold_in(derive(turn.key, "adapt"), index)
            head, change, _ = train(turn._replace(key=key), theta, head, data)
            return v - rate * pull(change)[0], head

        start = jnp.mean(v, 0), server.head
        v, head = jax.lax.fori_loop(0, exchanges, exchange, start)
        return tree.merge(hypernetwork.apply(h, v), head)

    return newcomer


def step(optimizer, server, uploads, cohort):
    """The server after a step along the mean gradient of the cohort's changes."""
    # Gathered once: several devices would exchange the slopes many times.
    changes, who = aggregation.gather(uploads, cohort)
    weight = aggregation.uniform(who)
    h, v = server.learned.w

    def weigh(leaf):
        return jax.vmap(jnp.multiply)(weight, leaf)

    changes = jax.tree.map(weigh, changes)
    of_h, of_rows = hypernetwork.slopes(h, tree.take(v, who.ids), changes)
    of_v = jnp.zeros_like(v).at[who.ids].add(of_rows, mode="drop")
    slope = aggregation.over_weight(Learned(of_h, of_v), weight)
    learned = server_step.step(optimizer, server.learned, slope)
    return server._replace(learned=learned)
