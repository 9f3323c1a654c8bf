"""FedAvg as SuPerFed's code has it: the server keeps its biases (`_code`)."""

from pfljax.algorithms._code import keep_biases
from pfljax.algorithms.fedavg import fedavg
from pfljax.core.types import Algorithm, Local, Task


def fedavg_code(task: Task, local: Local) -> Algorithm:
    """Builds it; without biases it is FedAvg."""
    return keep_biases(fedavg(task, local))
