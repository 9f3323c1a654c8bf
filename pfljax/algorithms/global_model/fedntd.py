"""FedNTD: clients keep the server's judgement of the classes that are not true.

Lee et al., NeurIPS 2022, https://arxiv.org/abs/2106.03097 (eq. 5).

    Server   w                Client  nothing
    Message  w                Upload  w_k, the parameters after local training

Let q_v be the softmax of the logits of model v over T, over all classes but the true
one. From w, client k minimises

    F_k(v) + beta T^2 mean over its examples of KL(q_w || q_v)

where q_w is constant, and computed in evaluation mode. The rest is FedAvg. At v = w the
divergence has no gradient, so the first local step is FedAvg's.

PFLlib has beta = 0 by default, which is FedAvg with uniform weights.
"""

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import losses
from pfljax.core.factories import component
from pfljax.core.ranges import Count, NotNegative, Positive
from pfljax.core.training import fit_objective
from pfljax.core.types import Algorithm, Local, Task


@component
def fedntd(
    task: Task,
    local: Local,
    *,
    beta: NotNegative = 1.0,
    temperature: Positive = 1.0,
    finetune: Count = 0,
) -> Algorithm:
    """Builds FedNTD; `beta` = 0, one local step or two classes are FedAvg.

    Args:
      beta: weight of the divergence; 0 is FedAvg.
      temperature: the temperature T.
      finetune: local steps before the evaluation; 0 for none.
    """

    def train(turn, w, client, data):
        def objective(v, batch, key):
            logits = task.logits(v, batch, key)
            loss = losses.data_loss(task, logits, batch)
            pair = task.predict(w, batch), logits
            target, own = (losses.without_true(z / temperature, batch) for z in pair)
            gap = losses.divergence(target, own, batch)
            return loss + beta * temperature**2 * gap, loss

        w_k, metrics = fit_objective(objective, w, data, turn, local)
        return client, w_k, metrics

    return fedavg(task, local, finetune=finetune)._replace(classes=True, train=train)
