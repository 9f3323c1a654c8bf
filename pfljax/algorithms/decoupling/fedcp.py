"""FedCP: a policy decides which features the shared head reads, and which the own one.

Zhang et al., KDD 2023, https://arxiv.org/abs/2307.01217 (Algorithm 1).

    Server   b, the body; g, the shared head; P, the policy
    Client   h_k, the head of this client
    Message  b, g and P       Upload  b_k, (h_k + g) / 2 and P_k, after local training

Let v_k be the sum over classes of the kernel of the received h_k, at length 1. For
features z the policy gives a pair of numbers for each feature, ReLU(LayerNorm(linear))
of z v_k. Their softmax is (s, r), with s + r = 1, and the logits are
h_k(s z) + g(r z). In training, Gumbel noise is added to the pairs. Client k minimises

    CE + lam MMD(z, z0)

over b, h_k and P, where z0 are the features of the received body and g is fixed (MMD:
`_mmd`, fixed widths). The server averages by numbers of examples. Client k is evaluated
with its own head and policy; a client that never took part, with g(z).

In the published code the noise is drawn in evaluations as well, and the upload takes
the place of the client's g.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from pfljax.algorithms._prototypes import width
from pfljax.algorithms.decoupling._mmd import discrepancy
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import leaves, tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.losses import data_loss
from pfljax.core.ranges import NotNegative
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Local, Params, Task


class Shared(NamedTuple):
    """What clients share: the server's state, the message and the upload."""

    w: Params  # b and g
    policy: Any


class Model(NamedTuple):
    """The model of a client, which reads features by two heads."""

    w: Params
    policy: Any
    h: Params
    context: Any  # f32[e], v
    share: Any  # f32[], 1, or 0 for the shared head alone


@component
def fedcp(task: Task, local: Local, *, lam: NotNegative = 1.0) -> Algorithm:
    """Builds FedCP.

    Args:
      lam: weight of the distance of the features from those of the received body.

    Raises:
      ValueError: the head has several layers.
    """
    in_head = leaves.of_kind(task, "head")
    size = width(task)
    require_one_layer(task, in_head, size)
    both = (-2, -1)  # a pair, for each feature
    normalise = nn.LayerNorm(epsilon=1e-5, reduction_axes=both, feature_axes=both)
    network = nn.Sequential([nn.DenseGeneral((2, size)), normalise, nn.relu])
    decide: Any = network.apply
    fix = jax.lax.stop_gradient

    def read(model, z, mask=None, key=None):
        vectors = z.reshape(len(z), -1)
        pair = decide(model.policy, vectors * model.context)
        if key is not None:
            pair += jax.random.gumbel(derive(key, "policy"), pair.shape)
        s = nn.softmax(pair, 1)[:, 0] * model.share
        own, other = (
            task.head(w, (part * vectors).reshape(z.shape), mask, key)
            for w, part in (
                (tree.merge(model.h, tree.split(model.w, in_head)[1]), s),
                (model.w, 1 - s),
            )
        )
        return model.share * own + other

    def model_of(shared, h, share):
        return Model(shared.w, shared.policy, h, context(h), jnp.float32(share))

    def train(turn, shared, h, data):
        g, _ = tree.split(shared.w, in_head)
        first = model_of(shared, h, 1)

        def objective(stepped, batch, key):
            b, h, policy = stepped
            w = tree.merge(g, b)
            z = task.features(w, batch, key)
            model = first._replace(w=w, policy=policy, h=h)
            loss = data_loss(task, read(model, z, batch.mask, key), batch)
            past = fix(task.features(shared.w, batch, None))
            return loss + lam * discrepancy(z, past, batch, relative=False), loss

        stepped = tree.split(shared.w, in_head)[1], h, shared.policy
        (b, h, policy), metrics = fit_objective(objective, stepped, data, turn, local)
        return h, Shared(tree.merge(tree.lerp(h, g, 0.5), b), policy), metrics

    def origin(shared, h, upload):
        g, b = tree.split(shared.w, in_head)
        return Shared(tree.merge(tree.lerp(h, g, 0.5), b), shared.policy)

    def init(params, num_clients, key):
        return Shared(params, network.init(derive(key, "policy"), jnp.zeros((1, size))))

    def newcomer(turn, shared, data):
        return model_of(shared, tree.split(shared.w, in_head)[0], 0)

    return fedavg(task, local)._replace(
        init=init,
        init_client=lambda params, client_id, key: tree.split(params, in_head)[0],
        train=train,
        server_model=lambda shared: shared.w,
        personal=lambda turn, shared, h, data: model_of(shared, h, 1),
        newcomer=newcomer,
        predict=lambda model, batch: read(model, task.features(model.w, batch, None)),
        origin=origin,
        parts=("body", "head"),
    )


def require_one_layer(task, in_head, size):
    """Raises a ValueError unless the head is one layer that reads all features."""
    head, _ = tree.split(shapes_of_model(task), in_head)
    shapes = [leaf.shape for leaf in jax.tree.leaves(head)]
    if [shape[0] for shape in shapes if len(shape) == 2] != [size]:
        raise ValueError(
            f"fedcp cannot train this model: its head has shapes {shapes}, expected "
            f"one dense layer of {size} features; choose another, such as model mlp"
        )


def context(h):
    """The sum over outputs of a head's kernel, at length 1, f32[e]."""
    kernel = next(leaf for leaf in jax.tree.leaves(h) if leaf.ndim == 2)
    total = kernel.sum(1)
    length = jnp.sqrt(jnp.sum(total**2))
    return total / jnp.where(length > 0, length, 1)
