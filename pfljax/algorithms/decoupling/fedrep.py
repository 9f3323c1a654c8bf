"""FedRep: clients train their own heads first, and then the shared body.

Collins et al., ICML 2021, https://arxiv.org/abs/2102.07078 (Algorithm 1).

    Server   b, the body      Client  h_k, the head of this client
    Message  b                Upload  b_k, the body after local training

The head takes its steps with b fixed, then the body takes its steps with that head
fixed, and b <- mean_k b_k. Each has an optimizer of its own, so that neither moves
while the other is trained.
"""

from pfljax.algorithms.decoupling.fedper import fedper, head_training
from pfljax.core import tree
from pfljax.core.factories import component
from pfljax.core.ranges import Count, Epochs
from pfljax.core.training import fit_part, steps_in_epochs, with_epochs
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
    train_head = head_training(task, local)
    in_body = tree.matches(task.groups, "body")

    def train(turn, body, head, data):
        head_turn = with_epochs(turn, local, head_epochs)
        head = train_head(head_turn, body, head, data)
        # The head is a constant here: momentum and decay leave it alone.
        params = tree.merge(body, head)
        params, metrics = fit_part(task.loss, params, in_body, data, turn, local)
        return head, tree.split(params, in_body)[0], metrics

    def work(steps, size, is_first):
        return steps + steps_in_epochs(steps, local, head_epochs)

    shared = fedper(task, local, finetune=finetune, weighting="uniform")
    return shared._replace(train=train, work=work)
