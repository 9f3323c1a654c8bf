"""FedMD. Li, Wang, 2019, https://arxiv.org/abs/1910.03581 (Algorithm 1).

Before its first round client k trains w_k on the labelled rows of the server, and then
on its own. A round has two exchanges, about a subset A of the server's rows. They
agree on the mean logits z(x) = mean_k f(w_k; x) of each x in A:

    Server   z; the order in which rows are drawn
    Client   w_k, this client's own params, and whether it is trained as above
    Message  A, the numbers of its rows    Upload  f(w_k; x) of x in A, evaluation mode

and then each client digests z, and revisits its own rows:

    Message  A and z                       Upload  nothing
    w_k goes down mean_x mean_c |f(w_k; x)_c - z(x)_c| for `digest_epochs` over A, and
    then trains on its own rows, as in local training.

A is drawn anew every round, each class in its share. Client k is judged by w_k after
its round; in the paper, before it has digested.

A distance of rounding alone counts as 0, where its slope is 0: a party alone, or those
that are all alike, digest nothing.

Differs from the paper's code: training before the first round stops after a number of
epochs, not when the loss on other rows says so; there is one size of batches on the
server's rows; every fit starts its optimizer afresh, where theirs keep the moments of
Adam. The labels of the server's rows are read before the first round, and for shares.
"""

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp

from pfljax.algorithms._row_outputs import compute_outputs, list_examples
from pfljax.algorithms.local import local as alone
from pfljax.core import aggregation, server_rows, tree
from pfljax.core.keys import fold
from pfljax.core.minibatches import rows, steps_per_epoch
from pfljax.core.training import fit
from pfljax.core.types import Algorithm, Local, Params, Task
from pfljax.registry import AtLeastOne, Count, component


class Server(NamedTuple):
    """What the clients agree on, and about which rows they do so next."""

    consensus: Any  # f32[A, K], mean logits
    order: Any  # i32[P], of all rows of the server


class Client(NamedTuple):
    """What a client keeps."""

    w: Params
    prepared: Any  # f32[], 1 once it is trained on the server's rows and its own


class Message(NamedTuple):
    """What a client digests."""

    rows: Any  # i32[A]
    consensus: Any  # f32[A, K]


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
    public_rows: Count = 1,
) -> Algorithm:
    """Builds FedMD; with `digest_epochs` = 0 and none before, it is local training.

    Args:
      subset: rows of the server at most that a round is about.
      digest_epochs: passes over these, towards the consensus.
      pretrain_epochs: passes over the server's rows before the first round.
      pretrain_own_epochs: passes over a client's own rows after these.
      public_batch_size: rows of a step on the server's rows.

    Raises:
      ValueError: the server has no rows.
    """
    server_rows.require("fedmd", public_rows)
    count = min(subset, public_rows)
    on_public = local._replace(batch_size=public_batch_size)
    epochs = pretrain_epochs, pretrain_own_epochs

    def init(params, num_clients, key):
        nothing = jnp.zeros((count, task.num_classes))
        return Server(nothing, server_rows.draw_order(key, public_rows))

    def choose_rows(turn, server, client):
        classes = task.num_classes
        return server_rows.stratify(server.order, turn.public, count, classes)

    def message(turn, server, client):
        return Message(choose_rows(turn, server, client), server.consensus)

    method = alone(task, local)._replace(
        init=init,
        init_client=lambda params, client_id, key: Client(params, jnp.float32(0)),
        personal=lambda turn, server, client, data: client.w,
    )
    return method._replace(
        message=choose_rows,
        train=consulting(task, local, on_public, epochs),
        aggregate=agree,
        origin=lambda message, client, upload: tree.zeros(upload),
        then=method._replace(
            message=message,
            train=digesting(task, local, on_public, digest_epochs),
            aggregate=with_new_order,
            origin=lambda message, client, upload: upload,
        ),
    )


def consulting(task, local, on_public, epochs):
    """The `train` that sends logits; a client that is new to it is prepared first."""

    def consult(turn, index, client, data):
        w = prepare(task, client, turn, data, (on_public, local), epochs)
        value = partial(task.predict, w)
        logits = compute_outputs(value, turn.public, index, on_public.batch_size)
        return Client(w=w, prepared=jnp.float32(1)), logits, {}

    return consult


def agree(server, uploads, cohort):
    """The server with the mean logits of who reported."""
    mean = aggregation.mean(uploads, aggregation.uniform(cohort))
    return server._replace(consensus=mean)


def digesting(task, local, on_public, epochs):
    """The `train` towards the consensus, and then on the client's own rows."""

    def digest(turn, message, client, data):
        subset = list_examples(message.rows)
        steps = epochs * steps_per_epoch(on_public, subset.size)
        apart = fold(turn, "digest")._replace(steps=steps)

        def distance(w, batch, key):
            seen = rows(turn.public, batch.x, batch.mask)
            wanted = message.consensus[batch.y]
            gap = task.logits(w, seen, key) - wanted
            # Rounding has a sign too, and would be stepped by as much as any distance.
            gap = jnp.where(jnp.abs(gap) > 1e-5 * (1 + jnp.abs(wanted)), gap, 0)
            of_row = jnp.mean(jnp.abs(gap), 1)
            return jnp.sum(batch.mask * of_row) / jnp.maximum(jnp.sum(batch.mask), 1)

        w, on_way = fit(distance, client.w, subset, apart, on_public)
        w, metrics = fit(task.loss, w, data, turn, local)
        return client._replace(w=w), (), metrics | {"distance": on_way["loss"]}

    return digest


def with_new_order(server, uploads, cohort):
    """The server, which draws the rows of the next round."""
    order = server_rows.draw_order(cohort.key, len(server.order))
    return server._replace(order=order)


def prepare(task, client, turn, data, locals_, epochs):
    """w_k, trained on the server's rows and then its own, if it has not been yet."""
    todo = (client.prepared == 0).astype(jnp.int32)
    w = client.w
    parts = zip(("public", "own"), (turn.public, data), locals_, epochs, strict=True)
    for purpose, part, how, passes in parts:
        # Of no steps after its first round: a loop that ends at once.
        steps = todo * passes * steps_per_epoch(how, part.size)
        apart = fold(turn, f"prepare {purpose}")._replace(steps=steps)
        w, _ = fit(task.loss, w, part, apart, how, metrics=())
    return w
