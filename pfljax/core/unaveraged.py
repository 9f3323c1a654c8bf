"""Parameters that no server averages: there they stay as they began.

In SuPerFed's code a server takes over the weights that clients send, and not the biases
of batch normalisation: every round begins with biases of 0. A model says so by the
parameter's name (`norm="batch_superfed"`, pfljax.models.layers).
"""

from typing import Any

import jax

from pfljax.core.types import Algorithm

UNSENT = "unsent_bias"


def leave_unsent(method: Algorithm) -> Algorithm:
    """The method, whose server keeps its own parameters of this name.

    A control variate `c` (SCAFFOLD) is no parameter: it goes on as the mean of c_k.
    """

    def own(path: Any, new: Any, old: Any) -> Any:
        fields = {getattr(key, "name", None) for key in path}
        unsent = getattr(path[-1], "key", None) == UNSENT
        return old if unsent and "c" not in fields else new

    def aggregate(server, uploads, cohort):
        new = method.aggregate(server, uploads, cohort)
        return jax.tree_util.tree_map_with_path(own, new, server)

    return method._replace(aggregate=aggregate)
