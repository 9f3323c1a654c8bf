"""Finds the layers of a model that is a chain, and embeds it in a wider network.

`make_chain` takes a task. It returns the units of each layer of its model, and the task
of the wider network. `widen` takes parameters of the model and returns those of the
network, with zeros for the further units. If the activation is 0 at 0, it computes the
same, and the zeros have no gradient. FedMA has a client's units among more shared ones.

For example, the kernel of a layer with 2 units, its columns. `widen` adds a third unit
of zeros, and `reorder` with the indices [1, 2, 0] then puts the first unit at the
position 2, and the second at the position 0:

    [[1, 2],   widened  [[1, 2, 0],   reordered  [[2, 0, 1],
     [3, 4]]             [3, 4, 0]]               [4, 0, 3]]
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp

from pfljax.algorithms.global_model import _units as units
from pfljax.core.ranges import Range
from pfljax.core.types import Array, ClientData, Params, Server, Task, Turn
from pfljax.core.units import Units

MOST = 700  # units of a layer of the wider network, unless the model has more
Growth = Annotated[float, Range(lambda x: 1 <= x <= MOST, f"a number from 1 to {MOST}")]


class Chain(NamedTuple):
    """The layers of a model, each read only by the next one, and its wider network."""

    task: Task  # of the wider network
    hidden: tuple[Units, ...]  # of the model
    logits: Units
    sizes: tuple[int, ...]  # units of each hidden layer of the wider network

    @property
    def is_wider(self) -> bool:
        """Whether the wider network differs from the model."""
        return self.sizes != tuple(layer.size for layer in self.hidden)


def make_chain(method: str, task: Task, growth: float) -> Chain:
    """The layers of the task's model, and the network that is `growth` times as wide.

    Hidden layers do not grow beyond `MOST` units.

    Raises:
      ValueError: the model has layers that are neither dense nor convolutions, or skip
        connections.
    """
    *hidden, logits = _find_layers(method, task)
    sizes = {}
    for layer in hidden:
        # Rounded: in floats, 1.1 times 10 is slightly above 11.
        grown = math.ceil(round(growth * layer.size, 6))
        sizes[layer.module] = max(layer.size, min(grown, MOST))
    model = Chain(
        task=task,
        hidden=tuple(hidden),
        logits=logits,
        sizes=tuple(sizes.values()),
    )
    if not model.is_wider:
        return model
    assert task.resized is not None
    return model._replace(task=task.resized(sizes))


def _find_layers(method: str, task: Task) -> list[Units]:
    """The units of each layer, the logits last."""
    layers: list[Units] = []
    reason = "it does not say what they are"
    if task.units is not None:
        try:
            layers = task.units()
            reason = _find_break(layers)
        except ValueError as error:
            reason, _, _ = str(error).partition(";")
    if reason:
        raise ValueError(
            f"{method} cannot match the units of this model: {reason}; choose one of "
            "dense layers and convolutions alone, such as mlp, twonn, twocnn or vgg9"
        )
    return layers


def _find_break(layers: Sequence[Units]) -> str:
    """The reason why the layers are no chain; "" if they are one.

    The readers of a layer are the parameters of other layers with an axis over its
    units. In a chain the only one is the kernel of the next layer.
    """
    for layer, following in itertools.zip_longest(layers, layers[1:]):
        if any(axis.shape[axis.axis] != layer.size for axis in layer.outputs):
            return f"{'/'.join(layer.module)} is recurrent"
        next_kernel = following and following.axes[0].path
        for reader in layer.readers:
            if reader.path != next_kernel:
                module = "/".join(reader.path[:-1])
                name = "/".join(layer.module)
                return f"{module} normalises, filters or adds to {name}"
    return ""


def widen(params: Params, model: Chain) -> Params:
    """The model's parameters in the wider network, with zeros for further units."""
    indices = [jnp.arange(size) for size in model.sizes]
    return reorder(params, model, indices)


def reorder(params: Params, model: Chain, indices: Sequence[Array]) -> Params:
    """The parameters with these units of each hidden layer; zeros past the end."""
    for layer, index in zip(model.hidden, indices, strict=True):
        params = units.reorder(params, layer, index)
    return params


def first_positions(model: Chain, num_clients: int) -> tuple[Array, ...]:
    """The positions of all clients' units by layer if they are the first ones."""
    return tuple(units.first_positions(layer, num_clients) for layer in model.hidden)


def get_rows(params: Params, model: Chain, number: int) -> Array:
    """The rows of a layer of the wider network, for the model's own units alone."""
    layer = [*model.hidden, model.logits][number]
    return units.get_rows(params, layer)[: layer.size]


def evaluation(model: Chain, params_of: Callable[[Server], Params]) -> dict[str, Any]:
    """The fields of an `Algorithm` that evaluate all clients with the wider network.

    A `server_model` has the widths of the task. A wider one is evaluated as personal.
    """

    def personal(turn: Turn, server: Server, client: Any, data: ClientData) -> Params:
        return params_of(server)

    if model.is_wider:
        return {"server_model": None, "personal": personal}
    return {"server_model": params_of, "personal": None}
