"""FedAvg: the server averages the models that the clients have trained.

McMahan et al., AISTATS 2017, https://arxiv.org/abs/1602.05629 (Algorithm 1).

    Server   w                Client  nothing
    Message  w                Upload  w_k, the parameters after local training

The server takes w <- sum_k n_k w_k / sum_k n_k, where n_k is the number of examples of
client k. Every client is evaluated with w, or after `finetune` local steps from w.
"""

from pfljax.core import aggregation
from pfljax.core.factories import component
from pfljax.core.ranges import Count
from pfljax.core.training import fine_tune, fit
from pfljax.core.types import Algorithm, Local, Task


@component
def fedavg(
    task: Task,
    local: Local,
    *,
    finetune: Count = 0,
) -> Algorithm:
    """Builds FedAvg; `finetune` local steps, 0 for none, precede the evaluation.

    Args:
      finetune: local steps before the evaluation; 0 for none.
    """

    def train(turn, w, client, data):
        w, metrics = fit(task.loss, w, data, turn, local)
        return client, w, metrics

    def personal(turn, w, client, data):
        return fine_tune(task.loss, w, data, turn, local, finetune)

    return Algorithm(
        init=lambda params, num_clients, key: params,
        # Clients keep nothing: an empty pytree has no leaf to store.
        init_client=lambda params, client_id, key: (),
        message=lambda turn, w, client: w,
        train=train,
        aggregate=aggregation.averaging("examples"),
        predict=task.predict,
        server_model=lambda w: w,
        # None says that all clients are evaluated with the server's model.
        personal=personal if finetune else None,
        adaptation_steps=finetune,
    )
