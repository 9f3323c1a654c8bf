"""FedLC: clients calibrate their logits by the number of their examples of each class.

Zhang et al., ICML 2022, https://arxiv.org/abs/2209.00189.

    Server   w                Client  nothing
    Message  w                Upload  w_k, the parameters after local training

Let n_j be the number of examples of class j of client k. From w, it minimises the mean
over its examples (x, y) of

    -log(exp(a_y) / sum_j exp(a_j)),   a_j = logit_j - tau n_j^(-1/4)

A class that the client does not have drops out of the sum, so its row of the head has
no gradient. Predictions have no calibration. The rest is FedAvg.

In the paper the sum runs over j != y (`over` = "others"). That loss has no lower bound:
it falls for ever as a_y grows. PFLlib, FL-bench and fluke sum over all classes, as the
default here. PFLlib counts the classes over all clients, which calibrates nothing if
these are balanced.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from pfljax.algorithms._classes import class_counts
from pfljax.algorithms.fedavg import fedavg
from pfljax.core import losses
from pfljax.core.factories import component
from pfljax.core.ranges import Count, NotNegative
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Local, Task

ABSENT = 1e20  # n_j^(-1/4) of no example: finite, so that tau = 0 is no calibration


@component
def fedlc(
    task: Task,
    local: Local,
    *,
    tau: NotNegative = 1.0,
    over: Literal["all", "others"] = "all",
    finetune: Count = 0,
) -> Algorithm:
    """Builds FedLC; `tau` = 0, or equally many examples of all classes, is FedAvg.

    Args:
      tau: strength of the calibration; 0 is FedAvg.
      over: the classes of the sum: "all", or the "others" than that of the example.
      finetune: local steps before the evaluation; 0 for none.
    """
    calibrated_loss = LOSSES[over]

    def train(turn, w, client, data):
        counts = class_counts(data, task.num_classes, local.batch_size)
        shift = tau * jnp.where(counts > 0, jnp.maximum(counts, 1) ** -0.25, ABSENT)

        def objective(w, batch, key):
            logits = task.logits(w, batch, key)
            loss = calibrated_loss(task, logits - shift, batch)
            return loss, losses.data_loss(task, logits, batch)

        w, metrics = fit_objective(objective, w, data, turn, local)
        return client, w, metrics

    return fedavg(task, local, finetune=finetune)._replace(classes=True, train=train)


def loss_over_others(task, logits, batch):
    """The mean of logsumexp over the other classes, minus the logit of the true one."""
    others = jax.nn.logsumexp(losses.without_true(logits, batch), 1)
    true = jnp.take_along_axis(logits, batch.y[:, None], 1)[:, 0]
    return losses.mean(others - true, batch)


LOSSES = {"all": losses.data_loss, "others": loss_over_others}
