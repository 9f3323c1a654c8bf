"""FedAvg. McMahan et al., AISTATS 2017, https://arxiv.org/abs/1602.05629 (Algorithm 1).

    Server   w                Client  nothing
    Message  w                Upload  w_k, the params after local training
w <- sum_k n_k w_k / sum_k n_k; everybody is judged by w, or after
`finetune` local steps from w.
"""

import jax.numpy as jnp

from pfljax.core import aggregation
from pfljax.core.keys import fold
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task


def fedavg(
    task: Task,
    local: Local,
    *,
    finetune: int = 0,
    reducer: aggregation.Reducer = aggregation.mean,
) -> Algorithm:
    """Builds FedAvg; `finetune` local steps, 0 for none, precede evaluation."""

    def train(turn, w, client, data):
        w, metrics = fit(task.loss, w, data, turn, local)
        return client, w, metrics

    def personal(turn, w, client, data):
        if finetune == 0:
            return w
        turn = fold(turn, "finetune")._replace(steps=jnp.int32(finetune))
        return fit(task.loss, w, data, turn, local)[0]

    return Algorithm(
        init=lambda params, num_clients, key: params,
        init_client=lambda params, client_id, key: (),
        message=lambda w, client: w,
        train=train,
        aggregate=lambda w, uploads, cohort: reducer(
            uploads, cohort.weight * cohort.mask
        ),
        personal=personal,
        predict=task.predict,
        server_model=lambda w: w,
    )
