"""Running statistics that are measured by a separate pass, not tracked in training.

Static batch normalisation: Diao, Ding, Tarokh, ICLR 2021,
https://arxiv.org/abs/2010.01264. Local training uses the statistics of its batches.
Evaluations use the mean over the batches of a pass with one model:

    server   the model W         client   one pass of W over its examples, in training
    message  W                            mode
                                 upload   the means of its batch statistics

All batches count equally, as with torch's `momentum=None`. The model decides how far a
batch moves a statistic: a normalisation with momentum 0 moves it all the way.
"""

from typing import Any

import jax
import jax.numpy as jnp

from pfljax.core import aggregation, statistics, tree
from pfljax.core.keys import fold
from pfljax.core.local_statistics import by_name, fill, unsent
from pfljax.core.minibatches import steps_per_epoch
from pfljax.core.training import over_batches
from pfljax.core.types import (
    Algorithm,
    Batch,
    ClientData,
    Key,
    Local,
    Metrics,
    Params,
    Task,
    Turn,
)


def measure(
    task: Task, params: Params, data: ClientData, turn: Turn, local: Local
) -> Params:
    """`params` with statistics that are the mean over the batches of the examples.

    A client without examples keeps those of `params`. Without statistics there is no
    pass.
    """
    if not statistics.has_any(params):
        return params
    running, others = tree.split(params, statistics.mask(params))
    steps = steps_per_epoch(local, data.size)
    turn = fold(turn, "statistics", steps)

    def step(total: Any, batch: Batch, key: Key) -> tuple[Any, Metrics]:
        def loss(running: Any) -> Any:
            return task.loss(tree.merge(running, others), batch, key)

        # A model in training mode gives its statistics the gradient old - new, whatever
        # the loss (`statistics.following`): `running` minus those of this batch.
        return tree.add(total, jax.grad(loss)(running)), {}

    total, _ = over_batches(step, tree.zeros(running), data, turn, local, ())
    share = 1 / jnp.maximum(steps, 1)
    # running - mean of (running - new) = mean of new
    return tree.merge(tree.axpy(-share, total, running), others)


def measure_after(method: Algorithm, task: Task, local: Local) -> Algorithm:
    """The method, whose cohort also measures the statistics of the new server model.

    The server state has the parameters of `task`. Clients are weighted by their
    examples. Without statistics the method is returned as it is.
    """
    if not statistics.has_any(task.groups):
        return method

    def train(turn, params, client, data):
        params = measure(task, params, data, turn, local)
        return client, by_name(params), {}

    def aggregate(server, uploads, cohort):
        means = aggregation.mean(uploads, aggregation.by_examples(cohort))
        return fill(unsent(server), means)

    return method._replace(
        then=method._replace(
            message=lambda turn, server, client: server,
            train=train,
            aggregate=aggregate,
            origin=lambda message, client, upload: by_name(message),
            # There is one model for all, so uploads have the same shapes.
            architecture=None,
        )
    )
