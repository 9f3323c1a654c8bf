"""FedMeta. Chen et al., 2018, https://arxiv.org/abs/1802.07876 (Algorithm 1).

    Server   theta, alpha if it is learned, and their optimizer   Client  nothing
    Message  theta, alpha     Upload  the gradients by theta and by alpha
A client's rows are support S and query Q. From theta_0 = theta, inner steps go
theta_{j+1} = theta_j - alpha * grad f(theta_j; S),  and the meta-gradient goes back,
from g = grad f(theta_m; Q),  by
g_alpha <- g_alpha - grad f(theta_j; S) * g  and  g <- g - H_j (alpha * g),
with * by coordinate and H_j the Hessian of f(.; S) at theta_j. The server steps along
the uniform means of g and g_alpha. Client k is judged by theta after inner steps on S.

Alpha is the number inner_lr (MAML) or has a coordinate for each of theta, and is
learned (Meta-SGD). Support are the first rows of a client, whose rows are shuffled.
"""

from typing import Any, NamedTuple

import jax

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import server_step, statistics, tree
from pfljax.core.minibatches import divide
from pfljax.core.training import full_gradient
from pfljax.core.types import Algorithm, Local, Params, Task
from pfljax.registry import AtLeastOne, NotNegative, ProperShare, component


class Meta(NamedTuple):
    """What is learned, and the gradients by it."""

    theta: Params
    alpha: Any  # shaped as theta; () where it is a number


class Point(NamedTuple):
    """Where an inner step began."""

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
    """Builds FedMeta; with `inner_lr` = 0, MAML is gradient descent on query rows.

    With `learn_alpha` it is Meta-SGD; `first_order` drops the Hessians. `local` is the
    server's: its optimizer, which goes on from round to round (Adam in the paper), and
    its rate. Clients take no steps of their own.

    Args:
      inner_lr: first rate of the inner steps.
      inner_steps: steps of adaptation.
      learn_alpha: rates are learned, one a parameter: Meta-SGD.
      first_order: without the Hessians.
      support: share of a client's rows by which it adapts.
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
        # In evaluation mode: adaptation is a function of theta and the rows alone.
        on_support, _ = slopes(task, local, divide(data, support), None)
        meta = server.w
        theta, _ = adapt(on_support, meta.theta, rates(meta), inner_steps)
        return theta

    return fedavg(task, local)._replace(
        init=init,
        message=lambda turn, server, client: server.w,
        train=train,
        aggregate=server_step.along_mean(local),
        server_model=lambda server: server.w.theta,
        personal=personal,
        adaptation_steps=inner_steps,
        # A gradient is a change already.
        origin=lambda meta, client, upload: tree.zeros(upload),
    )


def slopes(task, local, parts, key):
    """Of each part of the rows, params -> (loss, gradient); by a key with dropout."""

    def slope_on(data):
        size = local.batch_size
        return lambda params: full_gradient(task.loss, params, data, size, key)

    return [slope_on(data) for data in parts]


def adapt(slope_of, theta, alpha, steps):
    """(theta after the inner steps, the points where they began)."""

    def step(theta, _):
        loss, slope = slope_of(theta)
        after = tree.sub(theta, tree.multiply(alpha, slope))
        return after, Point(theta=theta, slope=slope, loss=loss)

    return jax.lax.scan(step, theta, length=steps)


def backwards(slope_of, path, alpha, g, first_order):
    """The gradients at the first point of the path, from g at its end."""

    def grad(theta):
        return slope_of(theta)[1]

    def step(gradients, point):
        g, g_alpha = gradients
        g_alpha = tree.sub(g_alpha, tree.multiply(point.slope, g))
        if not first_order:
            # Forwards: a loop over a traced number of batches has no reverse.
            _, turned = jax.jvp(grad, (point.theta,), (tree.multiply(alpha, g),))
            g = tree.sub(g, turned)
        return Meta(theta=g, alpha=g_alpha), None

    end = Meta(theta=g, alpha=tree.zeros(g))
    first, _ = jax.lax.scan(step, end, path, reverse=True)
    # Running statistics follow the batches: nothing learns their rate.
    return first._replace(alpha=statistics.without(first.alpha))
