"""FedMA: the server matches the hidden units of the clients layer by layer.

Wang et al., ICLR 2020, https://arxiv.org/abs/2002.06440 (Algorithm 1).

    Server   w, the matched model; the positions of each client's units in it
    Client   w_k, its model within a round, and the same at the start of the round
    Message  w with the client's own units alone; then, layer after layer, the matched
             layer and the positions of the client's units in it
    Upload   one layer of w_k; with the last layer also the examples of each class

A round has an exchange for each layer. Client k trains w_k and sends its first layer.
The server matches the hidden units of the clients (`_matching`), each a row of incoming
weights and a bias. The units of one match are averaged uniformly, and shrunk towards
the mean of the prior: 0 for weights and 0.1 for biases. The client replaces its layer
by the matched one, reorders the inputs of its next layer, trains the layers above, and
sends the next layer. The logits of class c are averaged with the clients' numbers of
examples of that class as weights. In the next round a client starts from the matched
units of its own units; a client that was not selected, from those that most clients
have. Every client is evaluated with w.

The reference matches on the host, with SciPy. Here matching is part of the program of a
round: many rounds, also those of several runs, are one program on the device, and a
visit to the host for each layer of each round would stop them all. So the number of
matched units is fixed: `growth` times those of a client, where unused units are zeros.
This suits activations that are 0 at 0, such as ReLU.

The model must be a chain of dense layers and convolutions. Others are refused:
normalisations, skip connections, and recurrent layers, which the paper also matches.

Differs from the paper: hidden layers do not grow by default. Each exchange has the
whole local training, which is 20 epochs in the paper. gamma is 7 in the paper's first
round and 5 after that; here it is 5. A client that is drawn twice in a round is matched
once. The first message goes to all clients, even to those that know all of it except
the last layer.
"""

from typing import Annotated, Any, NamedTuple

from pfljax.algorithms import _raveled as raveled
from pfljax.algorithms._classes import class_counts
from pfljax.algorithms.fedavg import fedavg
from pfljax.algorithms.global_model import _chain as chain
from pfljax.algorithms.global_model import _matching as matching
from pfljax.algorithms.global_model import _units as units
from pfljax.core import aggregation, tree
from pfljax.core.keys import derive, fold
from pfljax.core.training import fit_part
from pfljax.core.types import Algorithm, Local, Params, Task
from pfljax.registry import Count, Positive, Range, component

Growth = Annotated[float, Range(lambda x: 1 <= x <= 700, "a number from 1 to 700")]


class Server(NamedTuple):
    """The matched model, and the positions of the clients' units in it."""

    w: Params
    assignments: Any  # of each hidden layer i32[C, d]


class Client(NamedTuple):
    """Vectors of the matched model's shape: leaves would take longer to compile.

    The layers below the one that is trained have the matched order of units.
    """

    w: raveled.Raveled
    began: raveled.Raveled  # w at the start of the round


class Last(NamedTuple):
    """The last layer of a client, and its number of examples of each class."""

    rows: Any  # f32[K, D]
    counts: Any  # f32[K]


@component
def fedma(
    task: Task,
    local: Local,
    *,
    growth: Growth = 1.0,
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
    model = chain.chain("fedma", task, growth)
    spread = {"sigma0": sigma0, "sigma": sigma, "gamma": gamma}
    method = exchange(model, local, len(model.hidden), averaging(model))
    for number in reversed(range(len(model.hidden))):
        aggregate = match_layer(model, number, spread, sweeps)
        method = exchange(model, local, number, aggregate)._replace(then=method)
    return method


def exchange(model, local, number, aggregate):
    """The exchange of one layer: clients train from there up, and send it."""
    below = model.hidden[:number]

    def init(params, num_clients, key):
        return Server(chain.widen(params, model), chain.at_first(model, num_clients))

    def init_client(params, client_id, key):
        w = raveled.ravel(chain.widen(params, model))
        return Client(w=w, began=w)

    def message(turn, server, client):
        mine = tree.take(server.assignments, turn.id)
        if not below:
            return chain.with_units(server.w, model.hidden, mine)
        return matching.Matched(units.unit_rows(server.w, below[-1]), mine[number - 1])

    def begin(message, w):
        if not below:
            return chain.widen(message, model)
        w = raveled.unraveling(model.task)(w)
        return units.replace(w, below[-1], message.rows, message.assignment)

    def train(turn, message, client, data):
        w, began = (begin(message, part) for part in client)
        # Every exchange has its own minibatches.
        apart = fold(turn, f"layer {number}") if below else turn
        above = units.outside(below, w)
        w, metrics = fit_part(model.task.loss, w, above, data, apart, local)
        counts = class_counts(data, model.task.num_classes, local.batch_size)
        upload = make_upload(model, number, w, counts)
        # Only the first exchange has metrics, of whole models as in other methods.
        return Client(*map(raveled.ravel, (w, began))), upload, {} if below else metrics

    return fedavg(model.task, local)._replace(
        init=init,
        init_client=init_client,
        message=message,
        train=train,
        aggregate=aggregate,
        **chain.evaluate_by(model, lambda server: server.w),
        # A change of the whole round: a layer is also trained before its own exchange.
        origin=lambda message, client, upload: make_upload(
            model, number, begin(message, client.began)
        ),
    )


def make_upload(model, number, w, counts=None):
    """The upload of an exchange; without counts, its origin."""
    rows = chain.rows_of_layer(model, number, w)
    return rows if number < len(model.hidden) else Last(rows=rows, counts=counts)


def match_layer(model, number, spread, sweeps):
    """The `aggregate` of a hidden layer."""
    layer, count = model.hidden[number], model.places[number]

    def aggregate(server, rows, cohort):
        rows, cohort = aggregation.largest_first(rows, cohort)
        prior = matching.make_prior(rows.shape[-1], len(layer.outputs) > 1, **spread)
        key = derive(cohort.key, f"layer {number}")
        matched = matching.match(rows, cohort.mask, key, count, prior, sweeps)
        # A client that did not report starts from the units that most clients have.
        ids = aggregation.present_ids(cohort)
        assignments = list(server.assignments)
        # With several devices there are more entries than clients.
        others = units.at_first(layer, len(assignments[number]))
        assignments[number] = tree.put(others, ids, matched.assignment)
        w = units.with_rows(server.w, layer, matched.rows)
        return Server(w=w, assignments=tuple(assignments))

    return aggregate


def averaging(model):
    """The `aggregate` of the last layer: each class weighted by its examples."""

    def aggregate(server, uploads, cohort):
        reported = aggregation.uniform(cohort)
        rows = aggregation.mean_by_class(uploads.rows, uploads.counts, reported)
        return server._replace(w=units.with_rows(server.w, model.logits, rows))

    return aggregate
