"""FedPer as SuPerFed's code has it: the server keeps its biases (`_code`)."""

from pfljax.algorithms._code import keep_biases
from pfljax.algorithms.decoupling.fedper import fedper
from pfljax.core.types import Algorithm, Local, Task


def fedper_code(task: Task, local: Local) -> Algorithm:
    """Builds it; without biases it is FedPer."""
    return keep_biases(fedper(task, local))
