"""FedMA: the server matches the hidden units of the clients, layer by layer.

Wang et al., ICLR 2020, https://arxiv.org/abs/2002.06440 (Algorithm 1).

    Server   w, the matched model; the positions of each client's units in it
    Client   w_k, its model during a round, and the same at the start of the round
    Message  w with the client's own units alone; in later exchanges the matched layer
             and the positions of the client's units in it
    Upload   one layer of w_k; with the last layer also the examples of each class

Networks that are trained apart learn similar units in different orders, so that their
mean by position makes no sense. A round has an exchange for each layer, from the first:

    1. Client k trains the layer and those above it, and sends the layer.
    2. The server finds the units of the clients that match (`_matching`) and averages
       them uniformly, shrunk towards the prior: 0 for weights and 0.1 for biases.
    3. The client takes over the matched layer, with the inputs of the next layer in its
       order, and keeps it fixed from then on.

The units of the last layer are the classes, so that there is nothing to match: the
logits of class c are averaged with the clients' numbers of examples of that class as
weights. In the next round a client starts from the matched units of its own units; a
client that was not selected, from those that most clients have. Every client is
evaluated with w.

The reference matches on the host, with SciPy. Here matching is part of the program of a
round: many rounds, also those of several runs, are one program on the device, and a
visit to the host for each layer of each round would stop them all. So the number of
matched units is fixed: `growth` times those of a client, where unused units are zeros.
This suits activations that are 0 at 0, such as ReLU.

The model must be a chain of dense layers and convolutions. Others are refused,
such as normalisations and skip connections. Recurrent layers are refused too, although
the paper matches them.

Differs from the paper: hidden layers do not grow by default. Each exchange has the
whole local training, which is 20 epochs in the paper. gamma is 7 in the paper's first
round and 5 after that; here it is 5. Clients are matched in the order of their numbers
of examples, in the authors' code in that of the sizes of their networks. A client that
is drawn twice in a round is matched once. The first message goes to all clients, even
to those that know all of it except the last layer.
"""

from functools import partial
from typing import Any, NamedTuple

from pfljax.algorithms import _raveled as raveled
from pfljax.algorithms._classes import class_counts
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.global_model import _chain as chain
from pfljax.algorithms.global_model import _matching as matching
from pfljax.algorithms.global_model import _units as units
from pfljax.core import aggregation, tree
from pfljax.core.factories import component
from pfljax.core.keys import derive, fold
from pfljax.core.ranges import Count, Positive
from pfljax.core.training import fit_part
from pfljax.core.types import Algorithm, Local, Params, Task


class Server(NamedTuple):
    """The matched model, and the positions of the clients' units in it."""

    w: Params
    assignments: Any  # of each hidden layer i32[C, d]


class Client(NamedTuple):
    """Vectors of the matched model's shape: leaves would take longer to compile.

    The layers below the one that is trained have the matched order of units.
    """

    w: raveled.Raveled
    start: raveled.Raveled  # w at the start of the round


class Last(NamedTuple):
    """The last layer of a client, and its number of examples of each class."""

    rows: Any  # f32[K, D]
    counts: Any  # f32[K]


@component
def fedma(
    task: Task,
    local: Local,
    *,
    growth: chain.Growth = 1.0,
    gamma: Positive = 5.0,
    sigma: Positive = 1.0,
    sigma0: Positive = 1.0,
    sweeps: Count = 5,
) -> Algorithm:
    """Builds FedMA; for a model of one layer it is FedAvg, weighted by class.

    Args:
      task: a model that is a chain of layers.
      local: how a client trains in each exchange.
      growth: width of the matched model's hidden layers in multiples of a client's, at
        most 700 units; 1 keeps the model's size.
      gamma: a larger one leaves more units without a match.
      sigma: standard deviation of the clients' units around the matched ones.
      sigma0: standard deviation of matched units; a larger one shrinks them less.
      sweeps: number of times that each client is matched again.
    """
    model = chain.make_chain("fedma", task, growth)
    spread = {"sigma0": sigma0, "sigma": sigma, "gamma": gamma}

    def init(params, num_clients, key):
        positions = chain.first_positions(model, num_clients)
        return Server(w=chain.widen(params, model), assignments=positions)

    def init_client(params, client_id, key):
        w = raveled.ravel(chain.widen(params, model))
        return Client(w=w, start=w)

    method = fedavg(model.task, local)._replace(
        init=init,
        init_client=init_client,
        **chain.evaluation(model, lambda server: server.w),
    )
    # An exchange has the next one in its field `then`, so the last one is made first. A
    # round calls message, train and aggregate for layer 0, then for layer 1, and so on.
    aggregate = partial(average_classes, model)
    then = exchange(method, model, local, len(model.hidden), aggregate)
    for number in reversed(range(len(model.hidden))):
        aggregate = partial(match_layer, model, number, spread, sweeps)
        then = exchange(method, model, local, number, aggregate)._replace(then=then)
    return then


def exchange(method, model, local, number, aggregate):
    """The exchange of layer `number`: clients train it and those above, and send it.

    The layers `below` it were matched in the exchanges before, and stay fixed. So the
    message of the first exchange is the client's model, and later ones have the last
    layer of `below`, which the client does not know yet.
    """
    below = model.hidden[:number]

    def message(turn, server, client):
        own = tree.take(server.assignments, turn.id)
        if not below:
            return chain.reorder(server.w, model, own)
        rows = units.get_rows(server.w, below[-1])
        return matching.Matched(rows=rows, assignment=own[number - 1])

    def receive(message, w):
        if not below:
            return chain.widen(message, model)
        w = raveled.unraveling(model.task)(w)
        return units.replace_layer(w, below[-1], message.rows, message.assignment)

    def train(turn, message, client, data):
        w, start = (receive(message, part) for part in client)
        # Every exchange has its own minibatches.
        turn = fold(turn, f"layer {number}") if below else turn
        trained = units.mask_others(w, below)
        w, metrics = fit_part(model.task.loss, w, trained, data, turn, local)
        counts = class_counts(data, model.task.num_classes, local.batch_size)
        upload = make_upload(model, number, w, counts)
        client = Client(w=raveled.ravel(w), start=raveled.ravel(start))
        # Only the first exchange has metrics, of whole models as in other methods.
        return client, upload, {} if below else metrics

    def origin(message, client, upload):
        # A change of the whole round: a layer is also trained before its own exchange.
        return make_upload(model, number, receive(message, client.start))

    return method._replace(
        classes=True, message=message, train=train, aggregate=aggregate, origin=origin
    )


def make_upload(model, number, w, counts=None):
    """The upload of an exchange; without counts, its origin."""
    rows = chain.get_rows(w, model, number)
    return rows if number < len(model.hidden) else Last(rows=rows, counts=counts)


def match_layer(model, number, spread, sweeps, server, rows, cohort):
    """The `aggregate` of hidden layer `number`."""
    layer, size = model.hidden[number], model.sizes[number]
    rows, cohort = aggregation.largest_first(rows, cohort)
    prior = matching.make_prior(rows.shape[-1], len(layer.outputs) > 1, **spread)
    key = derive(cohort.key, f"layer {number}")
    matched = matching.match(rows, cohort.mask, key, size, prior, sweeps)
    assignments = list(server.assignments)
    # A client that did not report starts from the units that most clients have. With
    # several devices there are more entries than clients.
    others = units.first_positions(layer, len(assignments[number]))
    assignments[number] = aggregation.record(others, matched.assignment, cohort)
    w = units.set_rows(server.w, layer, matched.rows)
    return Server(w=w, assignments=tuple(assignments))


def average_classes(model, server, uploads, cohort):
    """The `aggregate` of the last layer: each class weighted by its examples."""
    reported = aggregation.uniform(cohort)
    rows = aggregation.mean_by_class(uploads.rows, uploads.counts, reported)
    return server._replace(w=units.set_rows(server.w, model.logits, rows))
