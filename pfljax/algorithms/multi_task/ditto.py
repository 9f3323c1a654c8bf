"""Ditto: clients also train a model of their own, near the shared one.

Li et al., ICML 2021, https://arxiv.org/abs/2012.04221 (Algorithm 1).

    Server   w                Client  v_k, the parameters of this client
    Message  w                Upload  that of FedAvg

Client k also minimises  F_k(v) + lam / 2 ||v - w||^2.  It is evaluated with v_k, or
with w before it first takes part.
"""

from pfljax.algorithms.fedavg import fedavg
from pfljax.core.factories import component
from pfljax.core.losses import proximal
from pfljax.core.ranges import Epochs, NotNegative
from pfljax.core.training import fit, steps_in_epochs, with_epochs
from pfljax.core.types import Algorithm, Local, Task


@component
def ditto(
    task: Task,
    local: Local,
    *,
    lam: NotNegative = 0.1,
    personal_epochs: Epochs = None,
) -> Algorithm:
    """Builds Ditto; `lam` = 0 trains v_k alone, and a large `lam` ties it to w.

    By default v_k takes as many steps as w, on the same minibatches.

    Args:
      lam: pull of a client's model to the server's; 0 trains it alone.
      personal_epochs: epochs of a client's own model; None for those of local training.
    """
    shared = fedavg(task, local)

    def train(turn, w, v, data):
        # The metric "loss" is that of w: every method has such a curve.
        _, upload, metrics = shared.train(turn, w, (), data)
        own_turn = with_epochs(turn, local, personal_epochs)
        near = proximal(w, lam)
        v, _ = fit(task.loss, v, data, own_turn, local, penalty=near, metrics=())
        return v, upload, metrics

    return shared._replace(
        init_client=lambda params, client_id, key: params,
        train=train,
        work=lambda steps, size, is_first: (
            steps + steps_in_epochs(steps, local, personal_epochs)
        ),
        personal=lambda turn, w, v, data: v,
        newcomer=lambda turn, w, data: w,
    )
