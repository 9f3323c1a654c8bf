"""MR-MTL: clients train models of their own, which are drawn to the mean of all.

Liu, Hu, Wu, Smith, NeurIPS 2022, https://arxiv.org/abs/2206.07902 (Algorithm 1).

    Server   w, the mean of all x_k       Client  x_k, the parameters of this client
    Message  w                            Upload  x_k after local training

Client k minimises  F_k(x) + lam / 2 ||x - w||^2  from its own x_k, and the server takes
w <- sum_k n_k x_k / sum_k n_k. This is Ditto without the training of w, in half of the
steps. Client k is evaluated with x_k, or with w before it first takes part.

The authors' code has lam = 0 by default, which is local training. FL4Health starts each
x_k at other parameters and sends changes, so that w never becomes the mean of the x_k.
"""

from pfljax.algorithms.fedavg import fedavg
from pfljax.core.factories import component
from pfljax.core.losses import proximal
from pfljax.core.ranges import NotNegative
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task


@component
def mr_mtl(task: Task, local: Local, *, lam: NotNegative = 0.1) -> Algorithm:
    """Builds MR-MTL; `lam` = 0 is local training.

    Args:
      lam: pull of a client's model to the mean of all; 0 trains it alone.
    """

    def train(turn, w, x, data):
        near = proximal(w, lam)
        x, metrics = fit(task.loss, x, data, turn, local, penalty=near)
        return x, x, metrics

    return fedavg(task, local)._replace(
        init_client=lambda params, client_id, key: params,
        train=train,
        personal=lambda turn, w, x, data: x,
        newcomer=lambda turn, w, data: w,
        origin=lambda w, x, upload: x,
    )
