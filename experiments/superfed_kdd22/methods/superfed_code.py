"""SuPerFed as its authors' code has it, KDD 2022, https://arxiv.org/abs/2109.07628.

    Server   w                Client  v_k, whether it ever mixed
    Message  w                Upload  w_k, the federated params after local training
Each step minimises  F_k(W) + mu sum_l ||w_f,l - w_l|| + nu cos^2(w_f, v)  over the
tensors l. The server keeps its biases (`_code`).
"""

import jax.numpy as jnp
from _code import keep_biases, pulled

from pfljax.algorithms.interpolation.superfed import first_mixed, phases, superfed
from pfljax.core.factories import component
from pfljax.core.ranges import AtLeastOne, NotNegative, Share
from pfljax.core.types import Algorithm, Local, Task


@component
def superfed_code(
    task: Task,
    local: Local,
    *,
    mixing: str = "model",
    mu: NotNegative = 0.01,
    nu: NotNegative = 2.0,
    start: Share = 0.4,
    evaluate_untrained: bool = False,
    rounds: AtLeastOne = 100,
) -> Algorithm:
    """Builds SuPerFed-MM (`mixing` = "model") or -LM ("layer").

    With `evaluate_untrained`, clients that never mixed are evaluated with their first
    v, as in the code.
    """
    method = superfed(task, local, mixing=mixing, start=start, rounds=rounds)
    first = first_mixed(start, rounds)

    def init_client(params, client_id, key):
        client = method.init_client(params, client_id, key)
        return client._replace(mixed=jnp.bool_(evaluate_untrained))

    return keep_biases(
        method._replace(
            init_client=init_client,
            train=phases(task, local, mixing, nu, first, lambda w: pulled(w, mu)),
        )
    )
