"""FedPer: clients share the body of the network and keep their own heads.

Arivazhagan et al., 2019, https://arxiv.org/abs/1912.00818 (Algorithms 1, 2).

    Server   b, the body      Client  h_k, the head of this client
    Message  b                Upload  b_k, the body after local training

Body and head are trained jointly, and b <- sum_k n_k b_k / sum_k n_k. Client k is
evaluated with the newest b and its own h_k. The head of a client that never took part
is as it was drawn, unless `finetune` first trains h_k (of every client) for that b. The
model defines what the body and the head are (`Task.groups`).
"""

from pfljax.algorithms.decoupling.partial import keep_leaves
from pfljax.core import leaves
from pfljax.core.factories import component
from pfljax.core.ranges import Count
from pfljax.core.types import Algorithm, Local, Task


@component
def fedper(
    task: Task, local: Local, *, finetune: Count = 0, weighting: str = "examples"
) -> Algorithm:
    """Builds FedPer; without a head it is FedAvg, without a body local training.

    Before the evaluation, `finetune` steps train the head with the body fixed, which
    gives clients that never took part a head as well.

    Args:
      finetune: steps of the head before the evaluation; 0 for none.
      weighting: the weight of a client at the server: "examples" or "uniform".
    """
    head = leaves.of_kind(task, "head")
    method = keep_leaves(task, local, head, finetune, weighting)
    # A run without one of them would be another method under this name.
    return method._replace(parts=("body", "head"))
