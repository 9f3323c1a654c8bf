"""FedRep. Collins et al., ICML 2021, https://arxiv.org/abs/2102.07078 (Algorithm 1).

    Server   b, the body      Client  h_k, this client's own head
    Message  b                Upload  b_k, the body after local training
First the head alone takes its steps, with b fixed; then the body alone, with that head
fixed; b <- mean_k b_k. Each has an optimizer of its own: neither moves while the other
is trained.
"""

from pfljax.algorithms.decoupling.fedper import fedper, head_training
from pfljax.core import tree
from pfljax.core.training import fit, with_epochs
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import Count, Epochs, component


@component
def fedrep(
    task: Task,
    local: Local,
    *,
    head_epochs: Epochs = 10,
    finetune: Count = 0,
) -> Algorithm:
    """Builds FedRep; without a head it is FedAvg with uniform weights.

    The body takes the budget of local training, the head `head_epochs` (None: the same
    budget). `finetune` steps of the head precede evaluation, as the authors' code does
    after the last round: so an unseen client gets a head.

    Args:
      head_epochs: epochs of the head; None for those of local training.
      finetune: steps of the head that precede evaluation; 0 for none.
    """
    train_head = head_training(task, local)

    def train(turn, body, head, data):
        head_turn = with_epochs(turn, local, head_epochs)
        head = train_head(head_turn, body, head, data)

        # The head is a constant of this loss: momentum and decay leave it alone.
        def loss(body, batch, key):
            return task.loss(tree.merge(body, head), batch, key)

        body, metrics = fit(loss, body, data, turn, local)
        return head, body, metrics

    shared = fedper(task, local, finetune=finetune, weighting="uniform")
    return shared._replace(train=train)
