"""FLoRA: stacked adapters are added to the kernels, and new ones are drawn each round.

Wang et al., NeurIPS 2024, https://arxiv.org/abs/2409.05976.

    Server   W, all leaves but adapters
    Client   nothing
    Message  W, and new adapters A, B = 0 of the client's rank
    Upload   A_k, B_k after local training, and other leaves that are trained

With p_k = n_k / sum_j n_j and the `scale` of the adapters, the server takes

    W <- W + scale [A_1 .. A_M] [p_1 B_1; ..; p_M B_M] = W + scale sum_k p_k A_k B_k

so that nothing is lost, whatever the ranks are. Kernels must be parameters, which
local training leaves alone: `--model lora:train=*/kernel`. Without adapters it is
FedAvg. The paper sends the stacks of all clients down; here W itself is sent, which a
client that missed rounds needs, too.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, tree
from pfljax.core.communication import shapes_of_model
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.leaves import FACTORS
from pfljax.core.local_statistics import name_in_model
from pfljax.core.training import fit_part
from pfljax.core.types import Algorithm, Local, Task


@component
def flora(task: Task, local: Local) -> Algorithm:
    """Builds FLoRA.

    Raises:
      ValueError: kernels with adapters are frozen.
    """
    tasks = task.peers or (task,)
    trained = _all_but_kernels(task)
    form = shapes_of_model(task)

    def without_factors(params):
        return {part: params[part] for part in params if part not in FACTORS}

    def factors(params):
        return {part: params[part] for part in params if part in FACTORS}

    def message(turn, w, client):
        return w | factors(task.init(derive(turn.key, "adapters")))

    def train(turn, w, client, data):
        w, metrics = fit_part(task.loss, w, trained, data, turn, local)
        return client, tree.split(w, trained)[0], metrics

    def aggregate(w, uploads, cohort):
        total, weights = tree.zeros(w), []
        for number, senders in aggregation.senders(cohort).items():
            weights.append(aggregation.by_examples(senders))
            merged = jax.vmap(partial(_add, tasks[number], w))(uploads[number])
            total = tree.add(total, aggregation.weighted_sum(merged, weights[-1]))
        return aggregation.over_weight(total, jnp.concatenate(weights))

    return fedavg(task, local)._replace(
        parts=("lora",),
        init=lambda params, num_clients, key: without_factors(params),
        message=message,
        train=train,
        aggregate=aggregate,
        server_model=lambda w: w | tree.zeros(factors(form)),
        origin=lambda w, client, upload: tree.split(w, trained)[0],
        architecture=task.number,
    )


def _all_but_kernels(task: Task) -> Any:
    """True at every leaf but the kernels that have adapters."""
    kernels = tree.paths(task.groups.get(FACTORS[0], {}))
    frozen = kernels.keys() - tree.paths(task.groups).keys()
    if frozen:
        raise ValueError(
            f"flora adds adapters to kernels, but {', '.join(sorted(frozen))} is "
            "frozen; choose a model such as lora:train=*/kernel"
        )

    def is_trained(path: Any, _: str) -> bool:
        return name_in_model(path) not in kernels

    return jax.tree_util.tree_map_with_path(is_trained, task.groups)


def _add(task: Task, w: Any, upload: Any) -> Any:
    """w with the products of an upload added to its kernels, and its other leaves."""
    whole = upload | tree.merge({part: upload[part] for part in w}, w)
    complete = tree.paths(task.complete(whole))
    # Frozen leaves are no part of w.
    named = [complete[name] for name in tree.paths(w)]
    return jax.tree.unflatten(jax.tree.structure(w), named)
