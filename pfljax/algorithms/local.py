"""Local training: clients train alone and exchange nothing.

McMahan et al., AISTATS 2017, https://arxiv.org/abs/1602.05629, without its averaging.

    Server   nothing          Client  w_k, the parameters of this client
    Message  nothing          Upload  nothing

Client k minimises F_k(w_k) whenever it is selected, and is evaluated with w_k. This is
the baseline of every comparison.
"""

from pfljax.core.factories import component
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task


@component
def local(task: Task, local: Local) -> Algorithm:
    """Builds local training; all clients start from the same parameters."""

    def train(turn, message, w, data):
        w, metrics = fit(task.loss, w, data, turn, local)
        upload = ()
        return w, upload, metrics

    return Algorithm(
        # The server, the message and the upload have no leaves, so nothing is sent.
        init=lambda params, num_clients, key: (),
        init_client=lambda params, client_id, key: params,
        message=lambda turn, server, w: (),
        train=train,
        aggregate=lambda server, uploads, cohort: (),
        personal=lambda turn, server, w, data: w,
        predict=task.predict,
    )
