"""FedBABU: the head keeps its first values, until each client is fine-tuned.

Oh, Kim and Yun, ICLR 2022, https://arxiv.org/abs/2106.06042 (Algorithm 1).

    Server   b, the body      Client  h, the first head, which is never trained
    Message  b                Upload  b_k, the body after local training

Clients train the body under the first head, the same for all, and b <- mean_k b_k.
Every client, also one that never took part, is evaluated with (b, h) after `finetune`
local steps on its own examples. With `finetune` = 0 this is the paper's "initial
accuracy".

PFLlib prints the accuracy before fine-tuning, and fine-tunes once after the last round.
"""

from typing import Literal

import jax

from pfljax.algorithms.decoupling.fedper import fedper
from pfljax.core import leaves, tree
from pfljax.core.factories import component
from pfljax.core.keys import fold
from pfljax.core.ranges import Count
from pfljax.core.training import fit_part
from pfljax.core.types import Algorithm, Local, Task


@component
def fedbabu(
    task: Task,
    local: Local,
    *,
    finetune: Count = 10,
    tune: Literal["model", "body", "head"] = "model",
    weighting: str = "uniform",
) -> Algorithm:
    """Builds FedBABU; without a head it is uniform FedAvg.

    Args:
      finetune: local steps before the evaluation; 0 for none.
      tune: the part that they train.
      weighting: the weight of a client at the server: "examples" or "uniform".
    """
    shared = fedper(task, local, weighting=weighting)
    in_body = leaves.of_kind(task, "body")
    tuned = jax.tree.map(lambda group: tune in ("model", group), task.groups)

    def train(turn, b, h, data):
        params = tree.merge(b, h)
        # The head is a constant here: momentum and decay leave it alone.
        params, metrics = fit_part(task.loss, params, in_body, data, turn, local)
        return h, tree.split(params, in_body)[0], metrics

    def personal(turn, b, h, data):
        turn = fold(turn, "finetune", finetune)
        return fit_part(task.loss, tree.merge(b, h), tuned, data, turn, local)[0]

    return shared._replace(train=train, personal=personal, adaptation_steps=finetune)
