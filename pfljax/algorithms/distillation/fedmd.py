"""FedMD: clients with different models agree on the logits of public examples.

Li, Wang, 2019, https://arxiv.org/abs/1910.03581 (Algorithm 1).

Before its first round client k trains w_k on the labelled public examples, and then on
its own. A round has two exchanges about a subset A of the public examples. In the
first, the clients agree on the mean logits z(x) = mean_k f(w_k; x) of each x in A:

    Server   z; the order in which examples are drawn
    Client   w_k, the parameters of this client, and whether it is trained as above
    Message  the numbers of the examples   Upload  f(w_k; x) of x in A, evaluation mode

In the second, each client digests z, and revisits its own examples:

    Message  A and z                       Upload  nothing

Client k minimises  mean_x mean_c |f(w_k; x)_c - z(x)_c|  for `digest_epochs` over A,
and then trains on its own examples, as in local training. A is drawn anew in every
round, stratified by class. Client k is evaluated with w_k after its round; in the
paper, before it has digested.

A distance of rounding errors alone counts as 0, with the gradient 0: a single client,
or clients that are all equal, digest nothing.

Differs from the paper's code: training before the first round stops after a number of
epochs, not by the loss on other examples; there is one batch size for the public
examples; and every fit starts its optimizer afresh, where theirs keep the moments of
Adam. The labels of the public examples are used before the first round, and to
stratify.
"""

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp

from pfljax.algorithms._example_outputs import compute_outputs, list_examples
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation
from pfljax.core.factories import component
from pfljax.core.keys import fold
from pfljax.core.losses import mean
from pfljax.core.minibatches import steps_per_epoch, take_examples
from pfljax.core.public_examples import draw_order, require_public, stratify
from pfljax.core.ranges import AtLeastOne, Count
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task, zero_origin


class Server(NamedTuple):
    """The consensus, and the order of the public examples."""

    consensus: Any  # f32[A, K], mean logits
    order: Any  # i32[P], the numbers of all public examples


class Client(NamedTuple):
    """The state of a client."""

    w: Params
    prepared: Any  # f32[], 1 once it is trained on the public examples and its own


@component
def fedmd(
    task: Task,
    local: Local,
    *,
    subset: AtLeastOne = 5000,
    digest_epochs: Count = 1,
    pretrain_epochs: Count = 20,
    pretrain_own_epochs: Count = 25,
    public_batch_size: AtLeastOne = 256,
    num_public: Count = 1,
) -> Algorithm:
    """Builds FedMD; with all three numbers of epochs 0 it is local training.

    Args:
      subset: largest number of public examples in a round.
      digest_epochs: passes over these, towards the consensus.
      pretrain_epochs: passes over the public examples before the first round.
      pretrain_own_epochs: passes over a client's own examples after these.
      public_batch_size: examples in a step on the public examples.

    Raises:
      ValueError: there are no public examples.
    """
    require_public("fedmd", num_public)
    count = min(subset, num_public)
    on_public = local._replace(batch_size=public_batch_size)

    def init(params, num_clients, key):
        return Server(jnp.zeros((count, task.num_classes)), draw_order(key, num_public))

    def choose_subset(turn, server, client):
        return stratify(server.order, turn.public, count, task.num_classes)

    def message(turn, server, client):
        return choose_subset(turn, server, client), server.consensus

    public_steps = steps_per_epoch(on_public, num_public)
    digest_steps = digest_epochs * steps_per_epoch(on_public, count)

    def preparing(steps, size, is_first):
        own_steps = pretrain_own_epochs * steps_per_epoch(local, size)
        return is_first * (pretrain_epochs * public_steps + own_steps)

    method = alone(task, local)._replace(
        classes=True,
        init=init,
        init_client=lambda params, client_id, key: Client(params, jnp.float32(0)),
        personal=lambda turn, server, client, data: client.w,
    )
    return method._replace(
        message=choose_subset,
        train=consulting(task, local, on_public, pretrain_epochs, pretrain_own_epochs),
        work=preparing,
        aggregate=agree,
        origin=zero_origin,
        then=method._replace(
            message=message,
            train=digesting(task, local, on_public, digest_steps),
            work=lambda steps, size, is_first: steps + digest_steps,
            aggregate=with_new_order,
            origin=lambda message, client, upload: upload,
        ),
    )


def consulting(task, local, on_public, public_epochs, own_epochs):
    """The `train` that sends logits, after the preparation of new clients."""

    def train(turn, index, client, data):
        # After a client's first round both fits have no steps, and end at once.
        is_new = (client.prepared == 0).astype(jnp.int32)
        public, w = turn.public, client.w
        w = prepare(task, w, "public", public, turn, on_public, is_new * public_epochs)
        w = prepare(task, w, "own", data, turn, local, is_new * own_epochs)
        value = partial(task.predict, w)
        logits = compute_outputs(value, turn.public, index, on_public.batch_size)
        return Client(w=w, prepared=jnp.float32(1)), logits, {}

    return train


def agree(server, uploads, cohort):
    """The server with the mean logits of the clients that reported."""
    weight = aggregation.uniform(cohort)
    return server._replace(consensus=aggregation.mean(uploads, weight))


def digesting(task, local, on_public, steps):
    """The `train` towards the consensus, and then on the client's own examples."""

    def train(turn, message, client, data):
        subset, consensus = message

        def distance(w, batch, key):
            # A batch of `list_examples` has no inputs and labels: x are the numbers of
            # public examples, and y their positions in A, where the consensus is.
            public = take_examples(turn.public, batch.x, batch.mask)
            target = consensus[batch.y]
            gap = task.logits(w, public, key) - target
            # A rounding error has a sign as well, and so a gradient of full size.
            gap = jnp.where(jnp.abs(gap) > 1e-5 * (1 + jnp.abs(target)), gap, 0)
            return mean(jnp.mean(jnp.abs(gap), 1), batch)

        digest = fold(turn, "digest", steps)
        w, digested = fit(distance, client.w, list_examples(subset), digest, on_public)
        w, metrics = fit(task.loss, w, data, turn, local)
        return client._replace(w=w), (), metrics | {"distance": digested["loss"]}

    return train


def with_new_order(server, uploads, cohort):
    """The server with a new order of the public examples, for the next round."""
    return server._replace(order=draw_order(cohort.key, len(server.order)))


def prepare(task, w, purpose, examples, turn, local, epochs):
    """w_k after some epochs over the examples; 0 epochs return it as it is."""
    steps = epochs * steps_per_epoch(local, examples.size)
    turn = fold(turn, f"prepare {purpose}", steps)
    return fit(task.loss, w, examples, turn, local, metrics=())[0]
