"""Networks whose layers follow one another, and the same network with wider layers.

A model has a place in the wider one, behind whose units there are zeros: where the
activation is 0 at 0, it computes the same there, and its zeros have no gradient. A
client of 2 hidden units, in a network of 3, and one whose units are number 2 and 0:

    w   [[1, 2], [3, 4]]     widened  [[1, 2, 0], [3, 4, 0]]
                             [[4, 9, 3], [6, 9, 5]] at 2, 0  [[3, 4], [5, 6]]
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from pfljax.core import units
from pfljax.core.types import Array, Params, Task
from pfljax.core.units import Units

MOST = 700  # units of a layer of the wider network, where the model has no more


class Chain(NamedTuple):
    """The layers of a model, each read by the next alone, and its wider network."""

    task: Task  # of the wider network
    hidden: tuple[Units, ...]  # of the model
    logits: Units
    places: tuple[int, ...]  # units of each hidden layer of the wider network


def chain(method: str, task: Task, growth: float) -> Chain:
    """The layers of the task's model, and the network that is `growth` times as wide.

    No hidden layer gets wider than `MOST` units.

    Raises:
      ValueError: the model has other layers than dense ones and convolutions, or skips.
    """
    *hidden, logits = _layers(method, task)
    places = {}
    for layer in hidden:
        # Rounded: 1.1 times 10 is a little above 11 in floats.
        grown = math.ceil(round(growth * layer.size, 6))
        places[layer.module] = max(layer.size, min(grown, MOST))
    wider = task
    if any(places[layer.module] > layer.size for layer in hidden):
        assert task.resized is not None
        wider = task.resized(places)
    return Chain(
        task=wider,
        hidden=tuple(hidden),
        logits=logits,
        places=tuple(places.values()),
    )


def _layers(method: str, task: Task) -> list[Units]:
    """The units of each layer, the logits last."""
    layers: list[Units] = []
    reason = "it does not say what they are"
    if task.units is not None:
        try:
            layers = task.units()
            reason = _break_of(layers)
        except ValueError as error:
            reason, _, _ = str(error).partition(";")
    if reason:
        raise ValueError(
            f"{method} cannot match the units of this model: {reason}; choose one of "
            "dense layers and convolutions alone, such as mlp, twonn, twocnn or vgg9"
        )
    return layers


def _break_of(layers: Sequence[Units]) -> str:
    """Why the layers are no chain; "" where they are."""
    for layer, following in itertools.zip_longest(layers, layers[1:]):
        next_kernel = following and following.axes[0].path
        for reader in layer.readers:
            if reader.path != next_kernel:
                module = "/".join(reader.path[:-1])
                return f"{module} normalises, filters or adds to {_name(layer)}"
    return ""


def _name(layer: Units) -> str:
    return "/".join(layer.module)


def with_units(
    params: Params,
    layers: Sequence[Units],
    indices: Sequence[Array],
) -> Params:
    """The params with these units of each hidden layer; zeros past the end."""
    for layer, index in zip(layers, indices, strict=True):
        params = units.rearranged(params, layer, index)
    return params


def widened(params: Params, of: Chain) -> Params:
    """The params in the wider network, with zeros behind the units of each layer."""
    indices = [jnp.arange(count) for count in of.places]
    return with_units(params, of.hidden, indices)
