"""Hidden units of a network: which parameters are permuted together."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flax import linen as nn
from flax.traverse_util import flatten_dict

from pfljax.core.statistics import STATISTICS
from pfljax.core.types import Params
from pfljax.core.units import Axis, Path, Units
from pfljax.models.blocks import Residual
from pfljax.models.convnets import Depthwise
from pfljax.models.dropout import Dropout
from pfljax.models.layers import BatchNorm, GroupNorm
from pfljax.models.linear import Linear
from pfljax.models.network import Network
from pfljax.models.recurrent import LSTM, Embedding

# They scale each channel, whatever they divide by.
CHANNELWISE = (
    GroupNorm,
    nn.GroupNorm,
    BatchNorm,
    nn.BatchNorm,
    nn.LayerNorm,
    nn.RMSNorm,
    Depthwise,
)


def hidden_units(network: nn.Module, params: Params) -> list[Units]:
    """Finds the units of each hidden layer of a model.

    The units on both sides of a skip connection are the same. The groups of a GroupNorm
    stay together, in any order, and units change places within them. Running statistics
    move with their units. A recurrent layer reads its own units, so that its recurrent
    kernel has them along both axes.

    Args:
      network: the module that `models.model` made or that `models.task` took.
      params: any parameters of it; only their shapes are read.

    Raises:
      ValueError: a layer is of an unknown kind, or params are not those of one model of
        the network.
    """
    *hidden, _ = layer_units(network, params)
    return hidden


def layer_units(network: nn.Module, params: Params) -> list[Units]:
    """Finds the units of `hidden_units`, followed by the logits.

    Raises:
      ValueError: see `hidden_units`.
    """
    leaves: Any = flatten_dict(params)
    walk = _Walk(leaves)
    # The order of the inputs is that of the data, so they have no group.
    outputs = walk(network, (), None)
    if outputs is None:
        raise ValueError(
            "the network has no dense layer and no convolution; give one that makes "
            "logits of examples"
        )
    roots = [walk.root(group) for group in walk.groups]
    groups = {id(root): root for root in roots}
    # The order of the logits is that of the classes.
    logits = walk.root(outputs)
    groups.pop(id(logits), None)
    return [
        Units(
            size=group.size,
            parts=group.parts,
            axes=tuple(group.axes),
        )
        for group in (*groups.values(), logits)
    ]


def resize(layer: Any, widths: Mapping[Path, int], path: Path = ()) -> Any:
    """Changes the number of units of the layers at these paths."""
    if path in widths:
        return layer.clone(features=widths[path])
    match layer:
        case Network():
            return layer.clone(
                body=resize(layer.body, widths, (*path, "body")),
                head=resize(layer.head, widths, (*path, "head")),
            )
        case nn.Sequential():
            inner = enumerate(layer.layers)
            layers = [resize(each, widths, (*path, f"layers_{i}")) for i, each in inner]
            return layer.clone(layers=layers)
    return layer


class _Group:
    """Units whose parameters are still being gathered.

    Where two branches of a residual block meet, their units are the same: `same_as`
    leads from one to the other, and `_Walk.root` follows it to the end.
    """

    def __init__(self, size: int):
        self.size = size
        self.parts = 1
        self.same_as = self
        self.axes: list[Axis] = []


class _Walk:
    """Follows units through the layers, in the order in which they run.

    `inputs` are the units that the next layer takes; None for the network's inputs.
    """

    def __init__(self, leaves: dict[Path, np.ndarray]):
        self.leaves = leaves
        self.groups: list[_Group] = []

    def root(self, group: _Group) -> _Group:
        """Returns the group that has the axes of these units."""
        while group.same_as is not group:
            group = group.same_as
        return group

    def tie(self, group: _Group | None, path: Path, axis: int) -> None:
        """Adds this axis to the units, if there is such a parameter."""
        # Layers without a bias or a scale lack these leaves.
        if group is None or path not in self.leaves:
            return
        shape = self.leaves[path].shape
        self.root(group).axes.append(Axis(path, axis, shape))

    def outputs(self, size: int, kernel: Path, axis: int) -> _Group:
        """Makes the units that a layer with this kernel puts out."""
        group = _Group(size)
        self.groups.append(group)
        self.tie(group, kernel, axis)
        return group

    def __call__(self, layer: Any, path: Path, inputs: _Group | None) -> Any:
        """Returns the units after the layer; ReLU, flatten and others keep them."""
        match layer:
            case Network():
                features = self(layer.body, (*path, "body"), inputs)
                return self(layer.head, (*path, "head"), features)
            case nn.Sequential():
                units = inputs
                for i, inner in enumerate(layer.layers):
                    units = self(inner, (*path, f"layers_{i}"), units)
                return units
            case Residual():
                return self.residual(layer, path, inputs)
            case nn.Dense() | nn.Conv() | Linear():
                return self.product(layer, path, inputs)
            case Embedding() | nn.Embed():
                return self.outputs(layer.features, (*path, "embedding"), 1)
            case LSTM():
                return self.lstm(layer, path, inputs)
            case nn.Module() if isinstance(layer, CHANNELWISE):
                self.channelwise(layer, path, inputs)
            case nn.Module() if not isinstance(layer, Dropout):
                raise ValueError(
                    f"{type(layer).__name__} at {'/'.join(path)} is a layer whose "
                    "units are unknown; give the model as a Network of dense layers, "
                    "convolutions, recurrent layers, normalisations and residual blocks"
                )
        return inputs

    def product(self, layer: Any, path: Path, inputs: _Group | None) -> _Group:
        """Follows a dense layer or a convolution."""
        if getattr(layer, "feature_group_count", 1) != 1:
            raise ValueError(f"{'/'.join(path)} is a grouped convolution; expected one")
        rank = 2 + np.size(getattr(layer, "kernel_size", ()))
        # Flax's kernels end with [inputs, outputs]; `Linear` has its outputs first.
        input_axis = rank - 2
        output_axis = rank - 1
        if isinstance(layer, Linear):
            input_axis = 1
            output_axis = 0
        name = (*path, "kernel")
        kernel = self.leaves.get(name, np.empty(()))
        if kernel.ndim != rank or kernel.shape[output_axis] != layer.features:
            raise ValueError(
                f"params have shape {kernel.shape} at {'/'.join(name)}, "
                f"expected {rank} axes, {layer.features} long at axis {output_axis}; "
                "give one model's parameters of this network"
            )
        self.tie(inputs, name, input_axis)
        group = self.outputs(layer.features, name, output_axis)
        self.tie(group, (*path, "bias"), 0)
        return group

    def lstm(self, layer: LSTM, path: Path, inputs: _Group | None) -> _Group:
        """Follows the layers of an LSTM, whose units lie along each of four gates."""
        units: Any = inputs
        kernels = [name for name in layer.OUTPUTS_FIRST if name.startswith("kernel_i")]
        for kernel in kernels:
            end = kernel.removeprefix("kernel_i")
            self.tie(units, (*path, kernel), 1)
            units = self.outputs(layer.hidden, (*path, kernel), 0)
            for name in ("kernel_h", "bias_i", "bias_h"):
                self.tie(units, (*path, name + end), 0)
            self.tie(units, (*path, "kernel_h" + end), 1)
        return units

    def channelwise(self, layer: Any, path: Path, units: _Group | None) -> None:
        """Follows a layer that keeps channels apart."""
        inner = path
        if isinstance(layer, GroupNorm):
            inner = (*path, "GroupNorm_0")
        self.tie(units, (*inner, "scale"), 0)
        self.tie(units, (*inner, "bias"), 0)
        for name in ("mean", "var"):
            self.tie(units, (*inner, STATISTICS, name), 0)
        if isinstance(layer, Depthwise):
            self.tie(units, (*path, "kernel"), 3)
        if units is None or not isinstance(layer, (GroupNorm, nn.GroupNorm)):
            return
        root = self.root(units)
        root.parts = np.lcm(root.parts, _num_groups(layer, root.size))

    def residual(
        self, layer: Residual, path: Path, inputs: _Group | None
    ) -> _Group | None:
        """Follows a residual block, whose branch and skip end in the same units."""
        branch = self(layer.branch, (*path, "branch"), inputs)
        skip = inputs
        if layer.skip is not None:
            skip = self(layer.skip, (*path, "skip"), inputs)
        if skip is None:
            raise ValueError(f"{'/'.join(path)} adds the input itself to its branch")
        branch_root = self.root(branch)
        skip_root = self.root(skip)
        if branch_root is not skip_root:
            skip_root.axes += branch_root.axes
            # An order that suits both normalisations keeps the finer parts together.
            skip_root.parts = np.lcm(branch_root.parts, skip_root.parts)
            branch_root.same_as = skip_root
        return skip_root


def _num_groups(layer: Any, channels: int) -> Any:
    """Counts the groups of a group normalisation of so many channels."""
    if isinstance(layer, GroupNorm):
        return np.gcd(8, channels)
    if layer.group_size:
        return channels // layer.group_size
    return layer.num_groups or 1
