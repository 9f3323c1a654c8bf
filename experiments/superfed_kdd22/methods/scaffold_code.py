"""SCAFFOLD for the tables of SuPerFed's code, KDD 2022, https://arxiv.org/abs/2109.07628.

    Server   x, c             Client  c_k, this client's control variate
    Message  x, c             Upload  dy = y - x and dc = c_k+ - c_k
The server keeps its biases (`_code`). The control variate c is no parameter: it goes on
as the mean of c_k. (SCAFFOLD in that code is FedAvg; see REPORT.md.)
"""

from _code import biases_of

from pfljax.algorithms.global_model.scaffold import scaffold
from pfljax.core.types import Algorithm, Local, Task


def scaffold_code(task: Task, local: Local) -> Algorithm:
    """Builds it; without biases it is SCAFFOLD, option II."""
    method = scaffold(task, local)

    def aggregate(server, uploads, cohort):
        new = method.aggregate(server, uploads, cohort)
        return new._replace(x=biases_of(server.x, new.x))

    return method._replace(aggregate=aggregate)
