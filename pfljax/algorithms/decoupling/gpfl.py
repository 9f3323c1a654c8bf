"""GPFL: features are read in two ways, for global classes and for a client's own head.

Zhang et al., ICCV 2023, https://arxiv.org/abs/2308.10279 (Algorithm 1).

    Server   b, the body; G, an embedding of each class; V, the conditional valve
    Client   h_k, the head of this client
    Message  b, G and V       Upload  b_k, G_k and V_k, after local training

A condition c turns features z into f(z, c) = ReLU((gamma(c) + 1) z + beta(c)), where
gamma and beta are networks LayerNorm(ReLU(linear)). Let g be the mean of the embeddings
G0 that client k received, and p_k their mean weighted by its numbers of examples of
each class, both constant in the round. Client k minimises over all its parameters

    CE(h(f(z, p_k)), y) + CE(cos(f(z, g), G_j)_j, y) + lam ||f(z, g) - G0_y||
    + decay / 2 (||G||^2 + ||V||^2),

where ||f(z, g) - G0_y|| is one norm over all examples and features of a minibatch. The
server averages by numbers of examples. Client k is evaluated with h_k(f(z, p_k)), from
the newest b, G and V. The head of a client that never took part is as it was drawn.

In the published code g and p_k come from the client's own trained G, a round late; it
is decayed by the optimizer, which with momentum is not the same.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from pfljax.algorithms._classes import class_counts
from pfljax.algorithms._prototypes import norm, unit, width
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import leaves, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.losses import data_loss
from pfljax.core.ranges import NotNegative
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Local, Params, Task

product = partial(jnp.matmul, precision="highest")


class Shared(NamedTuple):
    """What clients share: the server's state, the message and the upload."""

    b: Params
    classes: Any  # f32[K, e], G
    valve: Any  # parameters of gamma and beta, V


class Model(NamedTuple):
    """The model of a client, whose head reads features under a condition."""

    w: Params
    valve: Any
    condition: Any  # f32[e], p_k


@component
def gpfl(
    task: Task, local: Local, *, lam: NotNegative = 0.01, decay: NotNegative = 0.1
) -> Algorithm:
    """Builds GPFL.

    Args:
      lam: weight of the distance between features and embeddings; 0 leaves it out.
      decay: decay of the embeddings and of the valve.
    """
    in_head = leaves.of_kind(task, "head")
    size = width(task)
    network = nn.Sequential([nn.Dense(size), nn.relu, nn.LayerNorm(epsilon=1e-5)])
    branch: Any = network.apply

    def read(z, valve, condition):
        gamma, beta = (branch(part, condition) for part in valve)
        return nn.relu((gamma + 1) * z.reshape(len(z), -1) + beta)

    def head(w, z, *mode):
        return task.head(w, z.reshape(-1, *task.feature_shape), *mode)

    def condition(classes, data):
        count = class_counts(data, task.num_classes, local.batch_size)
        return product(count, classes) / jnp.maximum(data.size, 1)

    def train(turn, shared, h, data):
        g = jnp.mean(shared.classes, 0)
        p = condition(shared.classes, data)

        def objective(stepped, batch, key):
            w, classes, valve = stepped
            z = task.features(w, batch, key)
            logits = head(w, read(z, valve, p), batch.mask, key)
            common = read(z, valve, g)
            cosines = product(unit(common), unit(classes).T)
            gap = (common - shared.classes[batch.y]) ** 2 * batch.mask[:, None]
            loss = data_loss(task, logits, batch)
            by_class = data_loss(task, cosines, batch) + lam * norm(jnp.sum(gap))
            square = tree.square_norm((classes, valve))
            return loss + by_class + decay / 2 * square, loss

        stepped = tree.merge(h, shared.b), shared.classes, shared.valve
        (w, *others), metrics = fit_objective(objective, stepped, data, turn, local)
        h, b = tree.split(w, in_head)
        return h, Shared(b, *others), metrics

    def init(params, num_clients, key):
        valve = [
            network.init(derive(key, name), jnp.zeros(size))
            for name in ("gamma", "beta")
        ]
        classes = jax.random.normal(derive(key, "classes"), (task.num_classes, size))
        return Shared(tree.split(params, in_head)[1], classes, tuple(valve))

    def personal(turn, shared, h, data):
        p = condition(shared.classes, data)
        return Model(tree.merge(h, shared.b), shared.valve, p)

    def predict(model, batch):
        z = task.features(model.w, batch, None)
        return head(model.w, read(z, model.valve, model.condition))

    return fedavg(task, local)._replace(
        init=init,
        init_client=lambda params, client_id, key: tree.split(params, in_head)[0],
        train=train,
        server_model=None,
        personal=personal,
        predict=predict,
        classes=True,
        parts=("body", "head"),
    )
