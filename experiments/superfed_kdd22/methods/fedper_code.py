"""FedPer as SuPerFed's code has it, KDD 2022, https://arxiv.org/abs/2109.07628.

    Server   b, the body      Client  h_k, this client's own head
    Message  b                Upload  b_k, the body after local training
The server keeps its biases (`_code`).
"""

from _code import keep_biases

from pfljax.algorithms.decoupling.fedper import fedper
from pfljax.core.types import Algorithm, Local, Task


def fedper_code(task: Task, local: Local) -> Algorithm:
    """Builds it; without biases it is FedPer."""
    return keep_biases(fedper(task, local))
