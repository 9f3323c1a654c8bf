"""SuPerFed. Hahn, Jeong, Lee, KDD 2022, https://arxiv.org/abs/2109.07628 (Algorithm 1).

    Server   w                Client  v_k, this client's own params, from its own seed
    Message  w                Upload  w_k, the federated params after local training
Each step draws lambda ~ U(0, 1), one for the model (MM) or one a module (LM), and with
W = (1 - lambda) w_f + lambda v minimises over w_f (from w) and v
F_k(W) + mu ||w_f - w||^2 + nu cos^2(w_f, v).
In the first L = floor(start * rounds) rounds it is FedProx, v_k rests, and client k is
judged by w; after that, once it took part in mixing, by W at lambda = 1/2. Evaluation
also reports the whole path (`endpoints`).

Differs from the paper: its tables judge each client by the best lambda of its path, of
which lambda = 1/2 is one point. Its objective has the cosine term in the first L rounds
as well, where lambda = 0; here the term begins with mixing. Algorithm 1 as printed
starts v_k at w; text and code give it its own seed, and so does this.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import tree
from pfljax.core.keys import derive
from pfljax.core.losses import proximal
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task
from pfljax.registry import AtLeastOne, NotNegative, Share, component


class Client(NamedTuple):
    """What a client keeps."""

    v: Any
    mixed: Any  # bool[], whether v was ever trained


@component
def superfed(
    task: Task,
    local: Local,
    *,
    mixing: Literal["model", "layer"] = "model",
    mu: NotNegative = 0.01,
    nu: NotNegative = 2.0,
    start: Share = 0.4,
    rounds: AtLeastOne = 100,
) -> Algorithm:
    """Builds SuPerFed-MM (`mixing` = "model") or -LM ("layer").

    Mixing starts after `start` * `rounds` rounds. `start` = 1 is FedProx of coefficient
    2 mu; then `mu` = 0 is FedAvg.

    Args:
      mixing: of whole models ("model", MM) or of layers ("layer", LM).
      mu: weight of the proximal term.
      nu: weight of the squared cosine of the two models.
      start: share of the rounds before mixing.
    """
    first = first_mixed(start, rounds)

    def init_client(params, client_id, key):
        # A seed of its own: v from w would leave no path between the two.
        return Client(v=task.init(key), mixed=jnp.bool_(False))

    def near(w):
        # The objective has no 1/2.
        return proximal(w, 2 * mu)

    def personal(turn, w, client, data):
        # An evaluation counts rounds that are finished: one more than training does.
        mixes = client.mixed & (turn.round > first)
        return tree.lerp(w, client.v, jnp.where(mixes, 0.5, 0.0))

    def endpoints(w, client):
        # A v that never trained is no end of a path: the path is w alone.
        return w, tree.where(client.mixed, client.v, w)

    return fedavg(task, local)._replace(
        init_client=init_client,
        train=phases(task, local, mixing, nu, first, near),
        personal=personal,
        endpoints=endpoints,
    )


def phases(task, local, mixing, nu, first, near):
    """The `train` of FedProx with the penalty `near(w)`, mixing from round `first`."""

    def alone(turn, w, client, data):
        w_f, metrics = fit(task.loss, w, data, turn, local, penalty=near(w))
        return client, w_f, metrics

    def mix(turn, w, client, data):
        def loss(pair, batch, key):
            w_f, v = pair
            # Derived, for the key itself is that of dropout.
            t = draw_lambda(derive(key, "lambda"), task, mixing)
            return task.loss(tree.lerp(w_f, v, t), batch, key)

        pull = near(w)

        def penalty(pair):
            w_f, v = pair
            cosine = tree.square_cosine(w_f, v)
            return pull(w_f) + nu * cosine

        start = (w, client.v)
        (w_f, v), metrics = fit(loss, start, data, turn, local, penalty=penalty)
        return Client(v=v, mixed=jnp.bool_(True)), w_f, metrics

    def train(turn, w, client, data):
        # The round is traced: one program has both phases, and runs one.
        resting = turn.round < first
        return jax.lax.cond(resting, alone, mix, turn, w, client, data)

    return train


def first_mixed(start, rounds):
    """L, the first round that mixes, counted from 0."""
    return jnp.floor(start * rounds)


def draw_lambda(key, task, mixing):
    """lambda ~ U(0, 1): one number for the model, or one a module at its leaves."""
    if mixing == "model":
        return jax.random.uniform(key)
    shape = (task.num_modules,)
    lambdas = jax.random.uniform(key, shape)
    return jax.tree.map(lambda module: lambdas[module], task.modules)
