"""FedProx. Li et al., MLSys 2020, https://arxiv.org/abs/1812.06127 (Algorithm 2).

    Server   w                Client  nothing
    Message  w                Upload  w_k, the params after local training
Client k minimises  F_k(v) + mu / 2 ||v - w||^2  from v = w; the rest is FedAvg.

Differs from the paper: Algorithm 2 draws clients by their size, with replacement, and
averages uniformly (`--selection by_size`). The default here draws uniformly and weighs
by rows, as FedAvg does.
"""

from pfljax.algorithms.fedavg import fedavg
from pfljax.core.losses import proximal
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import Count, NotNegative, checked


@checked
def fedprox(
    task: Task,
    local: Local,
    *,
    mu: NotNegative = 0.01,
    finetune: Count = 0,
) -> Algorithm:
    """Builds FedProx; `mu` = 0 is FedAvg, a large `mu` holds clients at w.

    Partial work of stragglers is a matter of `pfljax.selection.stragglers`.
    `finetune` steps are without the proximal term.
    """

    def train(turn, w, client, data):
        # A penalty, not a part of the loss: the loss reported is still F_k.
        near = proximal(w, mu)
        w, metrics = fit(task.loss, w, data, turn, local, penalty=near)
        return client, w, metrics

    return fedavg(task, local, finetune=finetune)._replace(train=train)
