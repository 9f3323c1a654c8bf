"""FedMeta: the server meta-learns a model that clients adapt in a few steps.

Chen et al., 2018, https://arxiv.org/abs/1802.07876 (Algorithm 1).

    Server   theta, alpha if it is learned, and their optimizer   Client  nothing
    Message  theta, alpha     Upload  the gradients in theta and in alpha

The examples of a client are split into support S and query Q. From theta_0 = theta, it
takes inner steps  theta_{j+1} = theta_j - alpha * grad f(theta_j; S).  From
g = grad f(theta_m; Q),  the meta-gradient is computed backwards:
g_alpha <- g_alpha - grad f(theta_j; S) * g  and  g <- g - H_j (alpha * g),
where * is by coordinate and H_j is the Hessian of f(.; S) at theta_j. The server steps
along the uniform means of g and g_alpha. Client k is evaluated with theta after inner
steps on S.

alpha is the number inner_lr (MAML), or it is learned and has a coordinate for each one
of theta (Meta-SGD). The support set has the first examples of a client, whose order is
random.
"""

from typing import Any, NamedTuple

import jax

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import server_step, statistics, tree
from pfljax.core.factories import component
from pfljax.core.minibatches import divide, divide_size, steps_per_epoch
from pfljax.core.ranges import AtLeastOne, NotNegative, ProperShare
from pfljax.core.training import full_gradient
from pfljax.core.types import Algorithm, Local, Params, Task, zero_origin


class Meta(NamedTuple):
    """The learned parameters, or the gradients in them."""

    theta: Params
    alpha: Any  # shaped as theta; () where it is a number


class Point(NamedTuple):
    """The start of an inner step."""

    theta: Params
    slope: Params
    loss: Any


@component
def fedmeta(
    task: Task,
    local: Local,
    *,
    inner_lr: NotNegative = 0.1,
    inner_steps: AtLeastOne = 1,
    learn_alpha: bool = False,
    first_order: bool = False,
    support: ProperShare = 0.2,
) -> Algorithm:
    """Builds FedMeta; with `inner_lr` = 0, MAML is gradient descent on the query sets.

    With `learn_alpha` it is Meta-SGD; `first_order` drops the Hessians. `local` gives
    the server's optimizer and its rate. The optimizer keeps its state from round to
    round (Adam in the paper). Clients take no other steps.

    Args:
      inner_lr: first rate of the inner steps.
      inner_steps: number of inner steps.
      learn_alpha: learn a rate for each parameter: Meta-SGD.
      first_order: leave out the Hessians.
      support: share of a client's examples in its support set.
    """

    def rates(meta):
        return meta.alpha if learn_alpha else tree.full(meta.theta, inner_lr)

    def init(params, num_clients, key):
        alpha = tree.full(params, inner_lr) if learn_alpha else ()
        meta = Meta(theta=params, alpha=alpha)
        return server_step.first(server_step.from_local(local, 0), meta)

    def train(turn, meta, client, data):
        on_support, on_query = slopes(task, local, divide(data, support), turn.key)
        theta, path = adapt(on_support, meta.theta, rates(meta), inner_steps)
        query_loss, g = on_query(theta)
        gradients = backwards(on_support, path, rates(meta), g, first_order)
        upload = gradients if learn_alpha else gradients._replace(alpha=())
        return client, upload, {"loss": path.loss[0], "query_loss": query_loss}

    def personal(turn, server, client, data):
        # In evaluation mode: the adaptation depends on theta and the examples alone.
        on_support, _ = slopes(task, local, divide(data, support), None)
        meta = server.w
        theta, _ = adapt(on_support, meta.theta, rates(meta), inner_steps)
        return theta

    def work(steps, size, is_first):
        # An inner step has a gradient, and on the way back a product that costs two.
        parts = divide_size(size, support)
        in_support, in_query = (steps_per_epoch(local, part) for part in parts)
        return inner_steps * (1 if first_order else 3) * in_support + in_query

    return fedavg(task, local)._replace(
        init=init,
        message=lambda turn, server, client: server.w,
        train=train,
        work=work,
        aggregate=server_step.along_mean(local),
        server_model=lambda server: server.w.theta,
        personal=personal,
        adaptation_steps=inner_steps,
        origin=zero_origin,
    )


def slopes(task, local, parts, key):
    """For each part of the examples, params -> (loss, gradient); a key has dropout."""

    def slope_on(data):
        size = local.batch_size
        return lambda params: full_gradient(task.loss, params, data, size, key)

    return [slope_on(data) for data in parts]


def adapt(slope_of, theta, alpha, steps):
    """(theta after the inner steps, their starts)."""

    def step(theta, _):
        loss, slope = slope_of(theta)
        after = tree.sub(theta, tree.multiply(alpha, slope))
        return after, Point(theta=theta, slope=slope, loss=loss)

    return jax.lax.scan(step, theta, length=steps)


def backwards(slope_of, path, alpha, g, first_order):
    """The gradients at the start of the path, from g at its end."""

    def grad(theta):
        return slope_of(theta)[1]

    def step(gradients, point):
        g, g_alpha = gradients
        g_alpha = tree.sub(g_alpha, tree.multiply(point.slope, g))
        if not first_order:
            # Forward mode: a loop over a traced number of batches has no reverse mode.
            _, product = jax.jvp(grad, (point.theta,), (tree.multiply(alpha, g),))
            g = tree.sub(g, product)
        return Meta(theta=g, alpha=g_alpha), None

    end = Meta(theta=g, alpha=tree.zeros(g))
    first, _ = jax.lax.scan(step, end, path, reverse=True)
    # Running statistics follow the batches and have no learned rate.
    return first._replace(alpha=statistics.without(first.alpha))
