"""MAPPER: clients mix the logits of their own model and of the shared one.

Mansour, Mohri, Ro, Suresh, 2020, https://arxiv.org/abs/2002.10619.

    Server   h_g              Client  h_k, the parameters of this client, and lambda_k
    Message  h_g              Upload  h_g, after steps on this client's examples

The logits lambda z(h_k) + (1 - lambda) z(h_g) have the loss f_k(h_k, h_g, lambda). For
each lambda of a grid, h_k trains with h_g fixed, and the client keeps the lambda of
least loss over all its examples, with its h_k. Then h_g takes `global_steps` steps with
h_k fixed, and the server takes the uniform mean. Client k is evaluated with the
mixture, or with h_g before it first takes part; with `finetune`, after that many steps
of h_k, again for each lambda.

The grid has `shares` numbers from `lowest` to `highest`. The published code mixes
parameters instead of logits, which is the same for linear models.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.keys import fold
from pfljax.core.losses import data_loss, logits_of_both
from pfljax.core.ranges import AtLeastOne, Count, Share, Steps
from pfljax.core.requirements import require
from pfljax.core.training import fit, mean_over_examples
from pfljax.core.types import Algorithm, Array, Local, Params, Task


class Private(NamedTuple):
    """The state of a client."""

    h: Params
    share: Array  # f32[], lambda_k


class Mixture(NamedTuple):
    """The two models with which a client is evaluated."""

    private: Private
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

    `global_steps` = None takes as many steps as local training.

    Args:
      lowest: smallest weight lambda of the client's own model.
      highest: largest weight.
      shares: number of points of the grid between them.
      global_steps: steps of the shared model; None for those of local training.
      finetune: local steps before the evaluation; 0 for none.

    Raises:
      ValueError: lowest is above highest.
    """
    # In a sweep they have no values yet.
    fits = isinstance(highest - lowest, jax.Array) or lowest <= highest
    require("mapper: lowest", lowest, fits, f"at most highest, {highest}")
    grid = jnp.linspace(lowest, highest, shares)

    def steps_of_server(steps):
        return steps if global_steps is None else jnp.minimum(steps, global_steps)

    def train(turn, h_g, private, data):
        private, metrics = fit_shares(
            task, local, grid, turn, Mixture(private, h_g), data
        )

        def loss(h_g, batch, key):
            return mixture_loss(task, Mixture(private, h_g), batch, key)

        few = turn._replace(steps=steps_of_server(turn.steps))
        h_g, _ = fit(loss, h_g, data, few, local, metrics=())
        return private, h_g, metrics

    def personal(turn, h_g, private, data):
        mixture = Mixture(private, h_g)
        if finetune:
            turn = fold(turn, "finetune", finetune)
            private, _ = fit_shares(task, local, grid, turn, mixture, data)
        return mixture._replace(private=private)

    return fedavg(task, local)._replace(
        init_client=lambda params, client_id, key: first_client(params),
        train=train,
        work=lambda steps, size, is_first: shares * steps + steps_of_server(steps),
        aggregate=aggregation.averaging("uniform"),
        predict=lambda model, batch: predict(task, model, batch),
        personal=personal,
        newcomer=lambda turn, h_g, data: personal(turn, h_g, first_client(h_g), data),
        adaptation_steps=finetune,
    )


def first_client(h):
    """A client whose own model has no weight in its mixture yet."""
    return Private(h=h, share=jnp.float32(0))


def predict(task, model, batch):
    """The logits of a mixture, or of the server's model alone."""
    if not isinstance(model, Mixture):
        return task.predict(model, batch)
    return mix(model, *logits_of_both(task, model.private.h, model.h_g, batch))


def mix(mixture, z_k, z_g):
    """The mixed logits of both models."""
    return tree.lerp(z_g, z_k, mixture.private.share)


def mixture_loss(task, mixture, batch, key):
    """The mean loss of the mixed logits, for training one of the models."""
    private, h_g = mixture
    z_k, z_g = (task.logits(model, batch, key) for model in (private.h, h_g))
    return data_loss(task, mix(mixture, z_k, z_g), batch)


def fit_shares(task, local, grid, turn, mixture, data):
    """(the client's part of the mixture, trained with the best lambda, its metrics)."""

    def fit_share(share):
        def loss(h, batch, key):
            return mixture_loss(
                task, mixture._replace(private=Private(h, share)), batch, key
            )

        h, metrics = fit(loss, mixture.private.h, data, turn, local)
        trained = mixture._replace(private=Private(h, share))

        def value(batch):
            return data_loss(task, predict(task, trained, batch), batch)

        mean = mean_over_examples(value, data, local.batch_size)
        return mean, trained.private, metrics

    values, owns, metrics = jax.vmap(fit_share)(grid)
    return tree.take((owns, metrics), jnp.argmin(values))
