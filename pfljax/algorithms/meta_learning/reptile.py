"""Reptile: the server steps towards the mean of the models that clients have trained.

Nichol, Achiam, Schulman, 2018, https://arxiv.org/abs/1803.02999 (Algorithm 2).

    Server   w, and its optimizer   Client  nothing
    Message  w                      Upload  w_k, the parameters after local training

The local steps are the inner loop. The server steps by its optimizer along
mean_k (w - w_k), which by SGD is  w <- w + server_lr mean_k (w_k - w).  Every client is
evaluated with w, or after `finetune` local steps from w.

Jiang et al., 2019 (https://arxiv.org/abs/1909.12488) continue from a model of FedAvg
with few local steps and `server_optimizer` = adam, and evaluate w before and after
fine-tuning. Differs from the paper: server_lr does not decay over the rounds.
"""

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, server_step
from pfljax.core.factories import component
from pfljax.core.ranges import Count, Positive
from pfljax.core.types import Algorithm, Local, Task


@component
def reptile(
    task: Task,
    local: Local,
    *,
    server_lr: Positive = 1.0,
    server_optimizer: str = "sgd",
    finetune: Count = 0,
) -> Algorithm:
    """Builds Reptile; by SGD, `server_lr` = 1 is FedAvg with uniform weights.

    Args:
      server_lr: rate of the server's optimizer unless that sets its own.
      finetune: local steps before the evaluation; 0 for none.

    Raises:
      ValueError: the server's optimizer is unknown.
    """
    optimizer = server_step.by_name(server_optimizer, server_lr)
    averaged = fedavg(task, local, finetune=finetune)._replace(
        aggregate=aggregation.averaging("uniform")
    )
    return server_step.optimize(averaged, optimizer)
