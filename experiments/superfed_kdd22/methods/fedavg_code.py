"""FedAvg as SuPerFed's code has it, KDD 2022, https://arxiv.org/abs/2109.07628.

    Server   w                Client  nothing
    Message  w                Upload  w_k, the params after local training
The server keeps its biases (`_code`).
"""

from _code import keep_biases

from pfljax.algorithms.fedavg import fedavg
from pfljax.core.types import Algorithm, Local, Task


def fedavg_code(task: Task, local: Local) -> Algorithm:
    """Builds it; without biases it is FedAvg."""
    return keep_biases(fedavg(task, local))
