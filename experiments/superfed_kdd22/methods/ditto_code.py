"""Ditto as SuPerFed's code has it, KDD 2022, https://arxiv.org/abs/2109.07628.

    Server   w                Client  v_k, this client's own params
    Message  w                Upload  FedAvg's
Client k also minimises  F_k(v) + lam sum_l ||v_l - w_l||  over the tensors l. The
server keeps its biases (`_code`).
"""

from _code import keep_biases, pulled

from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.multi_task.ditto import ditto
from pfljax.core.factories import component
from pfljax.core.ranges import Epochs, NotNegative
from pfljax.core.training import fit, with_epochs
from pfljax.core.types import Algorithm, Local, Task


@component
def ditto_code(
    task: Task,
    local: Local,
    *,
    lam: NotNegative = 1.0,
    personal_epochs: Epochs = 5,
    evaluate_untrained: bool = False,
) -> Algorithm:
    """Builds Ditto as in the code.

    With `evaluate_untrained`, clients that never took part are evaluated with an
    untrained v_k, as in the code.
    """
    shared = fedavg(task, local)

    def train(turn, w, v, data):
        _, upload, metrics = shared.train(turn, w, (), data)
        own = with_epochs(turn, local, personal_epochs)
        v, _ = fit(task.loss, v, data, own, local, penalty=pulled(w, lam))
        return v, upload, metrics

    method = ditto(task, local)._replace(train=train)
    return keep_biases(method._replace(newcomer=None) if evaluate_untrained else method)
