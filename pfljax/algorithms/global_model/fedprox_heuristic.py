"""FedProx with mu by a heuristic. Li et al., MLSys 2020,
https://arxiv.org/abs/1812.06127 (section 5.3.2).

    Server   w, mu, how often the loss fell in a row, each client's last F_k(w)
    Client   nothing
    Message  w, mu
    Upload   w_k, and F_k(w)
What is advised where mu is not tuned: mu begins at 0 where clients' rows are IID, and
at 1 where they are not, and follows the loss as in adaptive FedProx.
"""

from pfljax.algorithms.global_model.fedprox_adaptive import fedprox_adaptive
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import Count, component


@component
def fedprox_heuristic(
    task: Task,
    local: Local,
    *,
    iid: bool = False,
    inexactness: bool = False,
    finetune: Count = 0,
) -> Algorithm:
    """Builds adaptive FedProx that begins at mu = 0 if `iid`, else at 1.

    Args:
      iid: mu begins at 0, else at 1.
      inexactness: adds the metric gamma.
      finetune: local steps that precede evaluation; 0 for none.
    """
    mu = 0.0 if iid else 1.0
    return fedprox_adaptive(
        task, local, mu=mu, inexactness=inexactness, finetune=finetune
    )
