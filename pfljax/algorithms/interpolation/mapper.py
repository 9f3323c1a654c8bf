"""MAPPER. Mansour, Mohri, Ro, Suresh, 2020, https://arxiv.org/abs/2002.10619.

    Server   h_g              Client  h_k, this client's own params, and lambda_k
    Message  h_g              Upload  h_g, after steps on this client's rows
With logits lambda z(h_k) + (1 - lambda) z(h_g), of loss f_k(h_k, h_g, lambda):
for each lambda of a grid, h_k trains with h_g fixed; the lambda of least loss on all
rows is kept, with its h_k. Then h_g takes `global_steps` steps with h_k fixed, and the
server takes the uniform mean. Client k is judged by the mixture, or by h_g before it
ever took part; with `finetune`, after so many steps of h_k, for each lambda again.

The grid are `shares` numbers from `lowest` to `highest`. Published code mixes
parameters, not logits; of linear models that is the same.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, tree
from pfljax.core.keys import fold
from pfljax.core.losses import cross_entropy, logits_of_both
from pfljax.core.training import fit, mean_over_rows
from pfljax.core.types import Algorithm, Array, Local, Params, Task
from pfljax.registry import AtLeastOne, Count, Share, Steps, component, require


class Own(NamedTuple):
    """What a client keeps."""

    h: Params
    share: Array  # f32[], lambda_k


class Mixture(NamedTuple):
    """The two models by which a client is judged."""

    own: Own
    h_g: Params


@component
def mapper(
    task: Task,
    local: Local,
    *,
    lowest: Share = 0.25,
    highest: Share = 0.75,
    shares: AtLeastOne = 3,
    global_steps: Steps = 1,
    finetune: Count = 0,
) -> Algorithm:
    """Builds MAPPER; the grid 0 is FedAvg with uniform weights, and 1 local training.

    `global_steps` = None is as many as the local ones.

    Args:
      lowest: smallest share lambda of the client's own model.
      highest: largest share.
      shares: points of the grid between them.
      global_steps: steps of the shared model; None for those of local training.
      finetune: local steps that precede evaluation; 0 for none.

    Raises:
      ValueError: lowest is above highest.
    """
    # In a sweep they have no values yet.
    fits = isinstance(highest - lowest, jax.Array) or lowest <= highest
    require("mapper: lowest", lowest, fits, f"at most highest, {highest}")
    grid = jnp.linspace(lowest, highest, shares)

    def train(turn, h_g, own, data):
        own, metrics = fit_shares(task, local, grid, turn, Mixture(own, h_g), data)

        def loss(h_g, batch, key):
            return mixture_loss(task, Mixture(own, h_g), batch, key)

        most = turn.steps if global_steps is None else global_steps
        few = turn._replace(steps=jnp.minimum(turn.steps, most))
        h_g, _ = fit(loss, h_g, data, few, local, metrics=())
        return own, h_g, metrics

    def personal(turn, h_g, own, data):
        turn = fold(turn, "finetune")._replace(steps=jnp.int32(finetune))
        if finetune:
            own, _ = fit_shares(task, local, grid, turn, Mixture(own, h_g), data)
        return Mixture(own=own, h_g=h_g)

    def predict(model, batch):
        # The server's model is judged by itself.
        if not isinstance(model, Mixture):
            return task.predict(model, batch)
        return mix(model, *logits_of_both(task, model.own.h, model.h_g, batch))

    def newcomer(turn, h_g, data):
        return personal(turn, h_g, first_client(h_g), data)

    return fedavg(task, local)._replace(
        init_client=lambda params, client_id, key: first_client(params),
        train=train,
        aggregate=aggregation.averaging("uniform"),
        predict=predict,
        personal=personal,
        newcomer=newcomer,
        adaptation_steps=finetune,
    )


def first_client(h):
    """A client that has no share in its mixture yet."""
    return Own(h=h, share=jnp.float32(0))


def mix(mixture, z_k, z_g):
    """The logits of both models, mixed."""
    return tree.lerp(z_g, z_k, mixture.own.share)


def mixture_loss(task, mixture, batch, key):
    """The mean loss of the mixed logits, to be trained in one of the models."""
    own, h_g = mixture
    z_k, z_g = (task.logits(model, batch, key) for model in (own.h, h_g))
    return cross_entropy(mix(mixture, z_k, z_g), batch)


def fit_shares(task, local, grid, turn, mixture, data):
    """(the client's part of the mixture, trained with the best share, its metrics)."""

    def one_share(share):
        def loss(h, batch, key):
            return mixture_loss(task, mixture._replace(own=Own(h, share)), batch, key)

        h, metrics = fit(loss, mixture.own.h, data, turn, local)
        found = mixture._replace(own=Own(h, share))

        def value(batch):
            both = logits_of_both(task, h, mixture.h_g, batch)
            return cross_entropy(mix(found, *both), batch)

        return mean_over_rows(value, data, local.batch_size), found.own, metrics

    values, owns, metrics = jax.vmap(one_share)(grid)
    return tree.take((owns, metrics), jnp.argmin(values))
