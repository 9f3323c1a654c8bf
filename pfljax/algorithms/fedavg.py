"""FedAvg. McMahan et al., AISTATS 2017, https://arxiv.org/abs/1602.05629 (Algorithm 1).

    Server   w                Client  nothing
    Message  w                Upload  w_k, the params after local training
w <- sum_k n_k w_k / sum_k n_k; everybody is judged by w, or after
`finetune` local steps from w.
"""

from pfljax.core import aggregation
from pfljax.core.training import fine_tune, fit
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import Count, component


@component
def fedavg(
    task: Task,
    local: Local,
    *,
    finetune: Count = 0,
) -> Algorithm:
    """Builds FedAvg; `finetune` local steps, 0 for none, precede evaluation.

    Args:
      finetune: local steps that precede evaluation; 0 for none.
    """

    def train(turn, w, client, data):
        w, metrics = fit(task.loss, w, data, turn, local)
        return client, w, metrics

    def personal(turn, w, client, data):
        return fine_tune(task.loss, w, data, turn, local, finetune)

    return Algorithm(
        init=lambda params, num_clients, key: params,
        # Nothing is kept: an empty pytree has no leaf that could be stored.
        init_client=lambda params, client_id, key: (),
        message=lambda turn, w, client: w,
        train=train,
        aggregate=aggregation.averaging("rows"),
        predict=task.predict,
        server_model=lambda w: w,
        # None tells evaluation that one model is judged for all clients.
        personal=personal if finetune else None,
        adaptation_steps=finetune,
    )
