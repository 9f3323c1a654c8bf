"""FedRep as SuPerFed's code has it, KDD 2022, https://arxiv.org/abs/2109.07628.

    Server   b, the body      Client  h_k, this client's own head
    Message  b                Upload  b_k, the body after local training
The server weighs by rows and keeps its biases (`_code`).
"""

from _code import keep_biases

from pfljax.algorithms.decoupling.fedper import fedper
from pfljax.algorithms.decoupling.fedrep import fedrep
from pfljax.core.factories import component
from pfljax.core.ranges import Epochs
from pfljax.core.types import Algorithm, Local, Task


@component
def fedrep_code(task: Task, local: Local, *, head_epochs: Epochs = 10) -> Algorithm:
    """Builds it; the head takes `head_epochs` (None: as many as the body)."""
    method = fedrep(task, local, head_epochs=head_epochs)
    by_rows = fedper(task, local).aggregate
    return keep_biases(method._replace(aggregate=by_rows))
