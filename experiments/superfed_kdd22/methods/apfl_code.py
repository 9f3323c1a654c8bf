"""APFL as SuPerFed's code has it, KDD 2022, https://arxiv.org/abs/2109.07628.

    Server   w                Client  v_k, alpha_k, which is fixed
    Message  w                Upload  w_k, the federated params after local training
With m = alpha v + (1 - alpha) w, where w is what the server sent, each step moves w_k
by grad f(w_k) and v by alpha grad f(m). The server weighs by rows and keeps its biases
(`_code`). In that code w has no weight decay; here it has that of `local`.
"""

import jax
from _code import keep_biases

from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.interpolation.apfl import apfl
from pfljax.core import tree
from pfljax.core.factories import component
from pfljax.core.ranges import Share
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task


@component
def apfl_code(
    task: Task, local: Local, *, alpha: Share = 0.25, evaluate_untrained: bool = False
) -> Algorithm:
    """Builds APFL as in the code.

    With `evaluate_untrained`, clients that never took part are evaluated with a mixture
    with an untrained v, as in the code.
    """
    slope_of = jax.value_and_grad(task.loss)

    def train(turn, received, own, data):
        def gradient(pair, batch, key):
            w, v = pair
            value, slope_w = slope_of(w, batch, key)
            _, slope_m = slope_of(tree.lerp(received, v, own.alpha), batch, key)
            return value, (slope_w, tree.scale(slope_m, own.alpha))

        start = received, own.v
        pair, metrics = fit(task.loss, start, data, turn, local, gradient)
        w, v = pair
        return own._replace(v=v), w, metrics

    method = apfl(task, local, alpha=alpha, adaptive=False)._replace(
        train=train, aggregate=fedavg(task, local).aggregate
    )
    return keep_biases(method._replace(newcomer=None) if evaluate_untrained else method)
