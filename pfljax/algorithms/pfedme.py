"""pFedMe. T. Dinh et al., NeurIPS 2020, https://arxiv.org/abs/2006.08848 (Algorithm 1).

    Server   w                Client  theta_k, and whether k ever took part
    Message  w                Upload  w_k
From w_k = w, every local step draws one minibatch, takes K steps on it of
theta <- theta - eta_p (grad f(theta) + lam (theta - w_k)), and then one of
w_k <- w_k - eta lam (w_k - theta). The server moves by
w <- (1 - beta) w + beta mean_k w_k. Client k is judged by theta_k, or by w before it
ever took part.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pfljax import reduce, tree
from pfljax.local import beside, fit
from pfljax.types import Algorithm, Local, Task


class Kept(NamedTuple):
    """What a client keeps."""

    theta: Any
    met: Any  # bool[]


def pfedme(
    task: Task,
    local: Local,
    *,
    lam: float = 15.0,
    inner_steps: int = 5,
    inner_lr: float = 0.1,
    beta: float = 1.0,
    warm: bool = True,
    inner_decay: float = 0.0,
    weighting: str = "uniform",
) -> Algorithm:
    """Builds pFedMe; `beta` = 0 or `lam` = 0 leaves w as it is.

    `local` steps w_k: eta is its rate, and a step a minibatch (the paper's R). theta
    starts a round at w and goes on from step to step; with warm=False each step begins
    at w_k, and `inner_steps` = 1 is then FedAvg of learning rate eta lam eta_p. The
    authors' code adds a weight decay of 0.001 to theta (`inner_decay`).
    """
    slope_of = jax.grad(task.loss)
    weights = reduce.weighting(weighting)

    def approach(theta, w, batch, key):
        """theta after K steps towards the minimum near w."""

        def step(i, theta):
            pull = tree.axpy(lam, tree.sub(theta, w), slope_of(theta, batch, key))
            pull = tree.axpy(inner_decay, theta, pull)
            return tree.axpy(-inner_lr, pull, theta)

        return jax.lax.fori_loop(0, inner_steps, step, theta)

    def train(turn, w, kept, data):
        def gradient(params, batch, key):
            w, theta = params
            near = approach(theta if warm else w, w, batch, key)
            value = task.loss(near, batch, key)
            return value, (tree.scale(tree.sub(w, near), lam), tree.sub(near, theta))

        stepped = beside(local, ("model", "other"), lambda rate: optax.identity())
        pair, metrics = fit(task.loss, (w, w), data, turn, stepped, gradient)
        return Kept(pair[1], jnp.bool_(True)), pair[0], metrics

    return Algorithm(
        init=lambda params, num_clients, key: params,
        init_client=lambda params, client_id, key: Kept(params, jnp.bool_(False)),
        message=lambda w, kept: w,
        train=train,
        aggregate=lambda w, uploads, cohort: tree.lerp(
            w, reduce.mean(uploads, weights(cohort)), beta
        ),
        personal=lambda turn, w, kept, data: tree.where(kept.met, kept.theta, w),
        predict=task.predict,
        server_model=lambda w: w,
    )
