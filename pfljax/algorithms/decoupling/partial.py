"""Partial personalisation: clients keep some leaves of the model and share the others.

Pillutla et al., ICML 2022, https://arxiv.org/abs/2204.03809 (Algorithms 1, 2 and 3).

    Server   u, the shared leaves      Client  v_k, the private leaves of this client
    Message  u                         Upload  u_k, u after local training

FedSim trains u and v_k at once. FedAlt first trains v_k with u fixed, and then u with
that v_k fixed; each has an optimizer of its own, so that neither moves while the other
is trained. The server takes u <- sum_k n_k u_k / sum_k n_k. Client k is evaluated with
the newest u and its own v_k. The private leaves of a client that never took part are as
they were drawn, unless `finetune` first trains v_k (of every client) for that u.

The names of private leaves are those of `core.leaves`. Private running statistics are
private like any other leaf. Clients with different architectures share u if its leaves
have the same shapes in all of them.
"""

from typing import Any

import jax

from pfljax.algorithms.fedavg import fedavg
from pfljax.core import aggregation, leaves, tree
from pfljax.core.factories import component
from pfljax.core.keys import fold
from pfljax.core.ranges import Count, Epochs
from pfljax.core.training import fit, fit_part, steps_in_epochs, with_epochs
from pfljax.core.types import Algorithm, Local, Task


@component
def partial(
    task: Task,
    local: Local,
    *,
    private: str = "head",
    alternate: bool = False,
    private_epochs: Epochs = None,
    finetune: Count = 0,
    weighting: str = "examples",
) -> Algorithm:
    """Builds FedSim, or FedAlt with `alternate`.

    Args:
      private: names of the leaves that clients keep, such as "norm", "head" or
        "*/bias", with spaces between them.
      alternate: whether private and shared leaves are trained in turn.
      private_epochs: epochs of the private leaves if they are trained in turn; None for
        those of local training.
      finetune: steps of the private leaves before the evaluation; 0 for none.
      weighting: the weight of a client at the server: "examples" or "uniform".

    Raises:
      ValueError: a name matches no leaf, or all leaves are private.
    """
    patterns = leaves.patterns("partial: private", private.split(), [task])
    chosen = leaves.choose(task, patterns)
    kept = jax.tree.leaves(chosen)
    if all(kept) or not any(kept):
        count = "all" if any(kept) else "none"
        raise ValueError(
            f"partial: private is {private!r}, which is {count} of the model's leaves; "
            "name a part of them, such as head or norm"
        )
    method = keep_leaves(task, local, chosen, finetune, weighting)
    if alternate:
        return in_turn(method, task, local, chosen, private_epochs)
    return method


def keep_leaves(
    task: Task, local: Local, private: Any, finetune: int, weighting: str
) -> Algorithm:
    """FedSim with the private leaves where `private` is True."""
    train_private = private_training(task, local, private)

    def train(turn, u, v, data):
        params = join(task, private, u, v)
        params, metrics = fit(task.loss, params, data, turn, local)
        v, trained = tree.split(params, private)
        return v, tree.with_structure(trained, u), metrics

    def personal(turn, u, v, data):
        params = join(task, private, u, v)
        if finetune:
            # A separate stream: evaluations must not change the steps of training.
            turn = fold(turn, "finetune", finetune)
            params = train_private(turn, params, data)
        return params

    return fedavg(task, local)._replace(
        init=lambda params, num_clients, key: tree.split(params, private)[1],
        init_client=lambda params, client_id, key: tree.split(params, private)[0],
        train=train,
        aggregate=aggregation.averaging(weighting),
        personal=personal,
        # A part of the leaves is no model.
        server_model=None,
        adaptation_steps=finetune,
    )


def in_turn(
    method: Algorithm, task: Task, local: Local, private: Any, epochs: Any
) -> Algorithm:
    """FedAlt: a method of `keep_leaves` that trains private leaves first."""
    train_private = private_training(task, local, private)
    shared = jax.tree.map(lambda is_private: not is_private, private)

    def train(turn, u, v, data):
        private_turn = with_epochs(turn, local, epochs)
        params = join(task, private, u, v)
        params = train_private(private_turn, params, data)
        # Private leaves are constants here: momentum and decay leave them alone.
        params, metrics = fit_part(task.loss, params, shared, data, turn, local)
        v, trained = tree.split(params, private)
        return v, tree.with_structure(trained, u), metrics

    def work(steps, size, is_first):
        return steps + steps_in_epochs(steps, local, epochs)

    return method._replace(train=train, work=work)


def join(task, private, u, v):
    """The model of shared and private leaves.

    The shared ones may come in the tree of another architecture.
    """
    _, layout = tree.split(task.groups, private)
    return tree.merge(tree.with_structure(u, layout), v)


def private_training(task, local, private):
    """A function (turn, params, data) -> params, whose private leaves are trained."""

    def train(turn, params, data):
        # A key of its own: the steps of shared leaves draw other minibatches.
        turn = fold(turn, "head")
        return fit_part(task.loss, params, private, data, turn, local)[0]

    return train
