"""FedProx with a heuristic for the first mu, which then follows the training loss.

Li et al., MLSys 2020, https://arxiv.org/abs/1812.06127 (section 5.3.2).

    Server   w, mu, the number of rounds in a row in which the loss fell, and the last
             F_k(w) of each client
    Client   nothing
    Message  w, mu
    Upload   w_k, and F_k(w)

The paper's advice when mu is not tuned: start at mu = 0 if the clients' examples are
IID, and at mu = 1 otherwise. From there mu follows the loss as in adaptive FedProx.
"""

from pfljax.algorithms.global_model.fedprox_adaptive import fedprox_adaptive
from pfljax.core.factories import component
from pfljax.core.ranges import Count
from pfljax.core.types import Algorithm, Local, Task


@component
def fedprox_heuristic(
    task: Task,
    local: Local,
    *,
    iid: bool = False,
    inexactness: bool = False,
    finetune: Count = 0,
) -> Algorithm:
    """Builds adaptive FedProx that starts at mu = 0 if `iid`, and else at 1.

    Args:
      iid: whether mu starts at 0; otherwise it starts at 1.
      inexactness: add the metric gamma.
      finetune: local steps before the evaluation; 0 for none.
    """
    mu = 0.0 if iid else 1.0
    return fedprox_adaptive(
        task, local, mu=mu, inexactness=inexactness, finetune=finetune
    )
