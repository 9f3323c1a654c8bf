"""Local training: nobody talks to anybody. The baseline of every comparison.

McMahan et al., AISTATS 2017, https://arxiv.org/abs/1602.05629, without its averaging.

    Server   nothing          Client  w_k, this client's own params
    Message  nothing          Upload  nothing
Client k minimises  F_k(w_k)  whenever it is drawn, and is judged by w_k.
"""

from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import component


@component
def local(task: Task, local: Local) -> Algorithm:
    """Builds local training; all clients start from the same parameters."""

    def train(turn, message, w, data):
        w, metrics = fit(task.loss, w, data, turn, local)
        upload = ()
        return w, upload, metrics

    return Algorithm(
        # Server, message and upload have no leaves: not a byte is sent.
        init=lambda params, num_clients, key: (),
        init_client=lambda params, client_id, key: params,
        message=lambda turn, server, w: (),
        train=train,
        aggregate=lambda server, uploads, cohort: (),
        personal=lambda turn, server, w, data: w,
        predict=task.predict,
    )
