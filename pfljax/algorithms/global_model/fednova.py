"""FedNova: the server averages changes per unit of local work.

Wang et al., NeurIPS 2020, https://arxiv.org/abs/2007.07481 (section 4).

    Server   w                Client  nothing
    Message  w                Upload  d_k = (w_k - w) / s_k, and s_k

Client k steps from w to w_k on the loss F_k(v) + mu / 2 ||v - w||^2. Let a_k be the
weights of its gradients in w_k - w. The length s_k = rate ||a_k||_1 is the number of
gradients of weight 1 that the path amounts to. With p_k = n_k / sum n, the server takes
w <- w + (sum_k p_k s_k) sum_k p_k d_k.

For plain SGD s_k is the rate times the steps. In general s_k is the distance that the
optimizer itself covers on a line of gradient 1. This is exact for momentum and for mu,
and also for weight decay, which counts as a pull to w.

Differs from the paper: p_k is normalised over the clients that report, where the paper
writes it for all clients. With mu > 0 the published code uses the mean number of steps
instead of sum_k p_k s_k.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, statistics, tree
from pfljax.core.factories import component
from pfljax.core.losses import proximal
from pfljax.core.optimizers import local_optimizer
from pfljax.core.ranges import Count, NotNegative
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Array, Local, Params, Task, Turn


class Upload(NamedTuple):
    """The change of a client's model per unit length of its path, and the length."""

    d: Params
    s: Any  # f32[]


@component
def fednova(
    task: Task,
    local: Local,
    *,
    mu: NotNegative = 0.0,
    finetune: Count = 0,
) -> Algorithm:
    """Builds FedNova; if all clients take equally many steps, it is FedProx of `mu`.

    The `finetune` steps do without the proximal term.

    Args:
      mu: weight of the proximal term; 0 leaves it out.
      finetune: local steps before the evaluation; 0 for none.
    """

    def train(turn, w, client, data):
        near = proximal(w, mu)
        w_k, metrics = fit(task.loss, w, data, turn, local, penalty=near)
        s = length(local, turn, mu)
        # A client that takes no step has moved by 0 over a length of 0.
        shorter = 1 / jnp.maximum(s, jnp.finfo(jnp.float32).tiny)
        d = statistics.scale(tree.sub(w_k, w), jnp.where(s > 0, shorter, 0))
        return client, Upload(d=d, s=s), metrics

    return fedavg(task, local, finetune=finetune)._replace(
        train=train,
        aggregate=aggregate,
        origin=lambda w, client, upload: Upload(d=tree.zeros(upload.d), s=None),
    )


def length(local: Local, turn: Turn, mu: float) -> Array:
    """s_k, f32[]: how far the turn's steps go from 0 on a line of slope 1 + mu x."""
    optimizer = local_optimizer(local, turn.round)

    def step(index: Array, carry: Any) -> Any:
        x, moments = carry
        updates, moments = optimizer.update(1 + mu * x, moments, x)
        return optax.apply_updates(x, updates), moments

    start = jnp.float32(0)
    x, _ = jax.lax.fori_loop(0, turn.steps, step, (start, optimizer.init(start)))
    return -x


def aggregate(w, uploads, cohort):
    """w + (sum_k p_k s_k) sum_k p_k d_k, over the clients that reported."""
    mean = aggregation.mean(uploads, aggregation.by_examples(cohort))
    return tree.add(w, statistics.scale(mean.d, mean.s))
