"""FedRep: clients train their own heads first, and then the shared body.

Collins et al., ICML 2021, https://arxiv.org/abs/2102.07078 (Algorithm 1).

    Server   b, the body      Client  h_k, the head of this client
    Message  b                Upload  b_k, the body after local training

The head takes its steps with b fixed, then the body takes its steps with that head
fixed, and b <- mean_k b_k. Each has an optimizer of its own, so that neither moves
while the other is trained.
"""

from pfljax.algorithms.decoupling.fedper import fedper
from pfljax.algorithms.decoupling.partial import in_turn
from pfljax.core import leaves
from pfljax.core.factories import component
from pfljax.core.ranges import Count, Epochs
from pfljax.core.types import Algorithm, Local, Task


@component
def fedrep(
    task: Task,
    local: Local,
    *,
    head_epochs: Epochs = 10,
    finetune: Count = 0,
) -> Algorithm:
    """Builds FedRep; without a head it is FedAvg with uniform weights.

    The body takes the budget of local training, and the head takes `head_epochs` (None
    for the same budget). Before the evaluation, `finetune` steps train the head, as the
    authors' code does after the last round; this gives clients that never took part a
    head as well.

    Args:
      head_epochs: epochs of the head; None for those of local training.
      finetune: steps of the head before the evaluation; 0 for none.
    """
    shared = fedper(task, local, finetune=finetune, weighting="uniform")
    head = leaves.of_kind(task, "head")
    return in_turn(shared, task, local, head, head_epochs)
