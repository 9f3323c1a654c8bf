"""SuPerFed: clients train the path between their own model and the shared one.

Hahn, Jeong, Lee, KDD 2022, https://arxiv.org/abs/2109.07628 (Algorithm 1).

    Server   w                Client  v_k, the parameters of this client
    Message  w                Upload  w_k, the federated parameters after local training

Each step draws lambda ~ U(0, 1), one for the model (MM) or one for each module (LM).
With W = (1 - lambda) w_f + lambda v it minimises over w_f (from w) and v
F_k(W) + mu ||w_f - w||^2 + nu cos^2(w_f, v).
In the first L = floor(start * rounds) rounds the method is FedProx, v_k does not
change, and client k is evaluated with w. After that, once it has taken part in mixing,
it is evaluated with W at lambda = 1/2. Evaluations also report the whole path
(`endpoints`).

Differs from the paper: its tables use the best lambda on each client's path, of which
lambda = 1/2 is one point. Its objective has the cosine term in the first L rounds too,
where lambda = 0; here the term starts with mixing. Algorithm 1 as printed starts v_k at
w; the text and the code give it its own seed, as here.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import tree
from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.losses import proximal
from pfljax.core.ranges import AtLeastOne, NotNegative, Share
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Task


class Client(NamedTuple):
    """The state of a client."""

    v: Any
    mixed: Any  # bool[], whether v has been trained


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
    """Builds SuPerFed-MM (`mixing` = "model") or SuPerFed-LM ("layer").

    Mixing starts after `start` * `rounds` rounds. `start` = 1 is FedProx of coefficient
    2 mu; then `mu` = 0 is FedAvg.

    Args:
      mixing: what is mixed: whole "model"s (MM) or "layer"s (LM).
      mu: weight of the proximal term.
      nu: weight of the squared cosine of the two models.
      start: share of the rounds before mixing.
    """
    first = first_mixed(start, rounds)

    def init_client(params, client_id, key):
        # With its own seed: from w there would be no path between the two.
        return Client(v=task.init(key), mixed=jnp.bool_(False))

    def personal(turn, w, client, data):
        # An evaluation counts finished rounds: one more than training does.
        mixes = client.mixed & (turn.round > first)
        return tree.lerp(w, client.v, jnp.where(mixes, 0.5, 0.0))

    def endpoints(w, client):
        # A v that was never trained is no end of a path: the path is w alone.
        return w, tree.where(client.mixed, client.v, w)

    return fedavg(task, local)._replace(
        init_client=init_client,
        # The objective has no 1/2.
        train=phases(task, local, mixing, nu, first, lambda w: proximal(w, 2 * mu)),
        personal=personal,
        endpoints=endpoints,
    )


def phases(task, local, mixing, nu, first, near):
    """The `train` of FedProx with the penalty `near(w)`, mixing from round `first`."""

    def train_alone(turn, w, client, data):
        w_f, metrics = fit(task.loss, w, data, turn, local, penalty=near(w))
        return client, w_f, metrics

    def train_mixed(turn, w, client, data):
        pull = near(w)

        def loss(pair, batch, key):
            w_f, v = pair
            # Derived: the key itself is that of dropout.
            t = draw_lambda(derive(key, "lambda"), task, mixing)
            return task.loss(tree.lerp(w_f, v, t), batch, key)

        def penalty(pair):
            w_f, v = pair
            cosine = tree.square_cosine(w_f, v)
            return pull(w_f) + nu * cosine

        start = (w, client.v)
        (w_f, v), metrics = fit(loss, start, data, turn, local, penalty=penalty)
        return Client(v=v, mixed=jnp.bool_(True)), w_f, metrics

    def train(turn, w, client, data):
        # The round is traced: one program has both phases, and runs one of them.
        alone = turn.round < first
        return jax.lax.cond(alone, train_alone, train_mixed, turn, w, client, data)

    return train


def first_mixed(start, rounds):
    """L, the first round that mixes, counted from 0."""
    return jnp.floor(start * rounds)


def draw_lambda(key, task, mixing):
    """lambda ~ U(0, 1): one number for the model, or one for each module."""
    if mixing == "model":
        return jax.random.uniform(key)
    lambdas = jax.random.uniform(key, (task.num_modules,))
    return jax.tree.map(lambda module: lambdas[module], task.modules)
