"""Permutations of hidden units that bring one model close to another.

Networks that differ in the order of their hidden units compute the same; `match_units`
finds the order of b's units that is closest to a's. Ainsworth et al., ICLR 2023 (git
re-basin), https://arxiv.org/abs/2209.04836.

    units = hidden_units(models.model("mlp", 10), a)
    matched, _ = match_units(units, a, b)
    before, after = (line(task, a, end, data) for end in (b, matched))
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict
from scipy.optimize import linear_sum_assignment

from pfljax.core.types import Params
from pfljax.models.convnets import Depthwise, Residual
from pfljax.models.dropout import Dropout
from pfljax.models.layers import BatchNorm, GroupNorm
from pfljax.models.linear import Linear
from pfljax.models.network import Network

Path = tuple[str, ...]


class Axis(NamedTuple):
    """Where units stand: an axis [pixels * units] of a parameter, units fastest."""

    path: Path
    axis: int
    shape: tuple[int, ...]  # of the parameter, of one model


class Units(NamedTuple):
    """Hidden units that are permuted together."""

    size: int
    parts: int  # equal parts that a normalisation keeps together; 1 if free
    axes: tuple[Axis, ...]


def hidden_units(network: nn.Module, params: Params) -> list[Units]:
    """The units of each hidden layer of a feed-forward model, by their parameters.

    The units on both sides of a skip are one. A GroupNorm's groups stay together, in
    any order, and units change places within them.

    Args:
      network: the module, as `models.model` makes it or as `models.task` was given it.
      params: any parameters of it: only their shapes are looked at.

    Raises:
      ValueError: a layer is of no known kind, or params are not one model's of the
        network.
    """
    leaves: Any = flatten_dict(jax.device_get(params))
    walk = _Walk(leaves)
    outputs = walk(network, (), None)
    found = {id(walk.root(own)): walk.root(own) for own in walk.all}
    found.pop(id(walk.root(outputs)), None)  # logits have an order of their own
    return [Units(own.size, own.parts, tuple(own.axes)) for own in found.values()]


class _Open:
    """Units whose parameters are still being gathered.

    Where two branches of a residual block meet, their units are the same: `same` then
    leads from one to the other, and `_Walk.root` to the end of that way.
    """

    def __init__(self, count: int):
        self.size, self.parts, self.same = count, 1, self
        self.axes: list[Axis] = []


class _Walk:
    """Follows units through the layers, in the order in which they run.

    `own` are the units that the next layer takes: None of the inputs.
    """

    def __init__(self, leaves: dict[Path, np.ndarray]):
        self.leaves = leaves
        self.all: list[_Open] = []

    def root(self, own: _Open) -> _Open:
        """Who gathers for these units."""
        while own.same is not own:
            own = own.same
        return own

    def tie(self, own: _Open | None, path: Path, axis: int) -> None:
        """These units stand at this axis, if there is such a parameter."""
        if own is not None and path in self.leaves:
            self.root(own).axes.append(Axis(path, axis, self.leaves[path].shape))

    def fresh(self, path: Path, axis: int) -> _Open:
        """The units that a layer makes."""
        made = _Open(self.leaves[(*path, "kernel")].shape[axis])
        self.all.append(made)
        self.tie(made, (*path, "kernel"), axis)
        self.tie(made, (*path, "bias"), 0)
        return made

    def __call__(self, layer: Any, path: Path, own: _Open | None) -> Any:
        """The units after the layer; functions such as ReLU and flatten keep them."""
        match layer:
            case Network():
                own = self(layer.body, (*path, "body"), own)
                return self(layer.head, (*path, "head"), own)
            case nn.Sequential():
                for i, each in enumerate(layer.layers):
                    own = self(each, (*path, f"layers_{i}"), own)
                return own
            case Residual():
                return self.meet(layer, path, own)
            case nn.Dense() | nn.Conv() | Linear():
                return self.product(layer, path, own)
            case GroupNorm() | nn.GroupNorm() | BatchNorm() | Depthwise():
                self.channelwise(layer, path, own)
            case nn.Module() if not isinstance(layer, Dropout):
                raise ValueError(
                    f"{type(layer).__name__} at {'/'.join(path)} is no layer whose "
                    "units are known; give the model as a Network of dense layers, "
                    "convolutions, normalisations and residual blocks"
                )
        return own

    def product(self, layer: Any, path: Path, own: _Open | None) -> _Open:
        """A dense layer or a convolution."""
        if getattr(layer, "feature_group_count", 1) != 1:
            raise ValueError(f"{'/'.join(path)} is a grouped convolution; expected one")
        rank = 2 + np.size(getattr(layer, "kernel_size", ()))
        kernel = self.leaves.get((*path, "kernel"), np.empty(()))
        inputs, outputs = (1, 0) if isinstance(layer, Linear) else (rank - 2, rank - 1)
        if kernel.ndim != rank or kernel.shape[outputs] != layer.features:
            raise ValueError(
                f"params have shape {kernel.shape} at {'/'.join((*path, 'kernel'))}, "
                f"expected {rank} axes, {layer.features} long at axis {outputs}; give "
                "one model's parameters of this network"
            )
        self.tie(own, (*path, "kernel"), inputs)
        return self.fresh(path, outputs)

    def channelwise(self, layer: Any, path: Path, own: _Open | None) -> None:
        """A layer that keeps each channel by itself."""
        inner = (*path, "GroupNorm_0") if isinstance(layer, GroupNorm) else path
        for name in ("scale", "bias"):
            self.tie(own, (*inner, name), 0)
        if isinstance(layer, Depthwise):
            self.tie(own, (*path, "kernel"), 3)
        if own is None or not isinstance(layer, (GroupNorm, nn.GroupNorm)):
            return
        root = self.root(own)
        if isinstance(layer, GroupNorm):
            root.parts = np.lcm(root.parts, np.gcd(8, root.size))
        else:
            size = layer.group_size
            groups = root.size // size if size else layer.num_groups or 1
            root.parts = np.lcm(root.parts, groups)

    def meet(self, layer: Residual, path: Path, own: _Open | None) -> _Open | None:
        """Branch and skip end in the same units."""
        branch = self(layer.branch, (*path, "branch"), own)
        if layer.skip is not None:
            own = self(layer.skip, (*path, "skip"), own)
        if own is None:
            raise ValueError(f"{'/'.join(path)} adds the input itself to its branch")
        one, other = self.root(branch), self.root(own)
        if one is not other:
            other.axes += one.axes
            other.parts = np.lcm(one.parts, other.parts)
            one.same = other
        return other


def permute_units(
    units: Sequence[Units], params: Params, orders: Sequence[np.ndarray]
) -> Params:
    """The model whose units of group g are those of `params` in the order `orders[g]`.

    It computes what `params` computes.

    Raises:
      ValueError: params are not one model's, of the network whose units these are.
    """
    leaves = _leaves(units, params, "params")
    for own, order in zip(units, orders, strict=True):
        for path, axis, _ in own.axes:
            leaves[path] = _reordered(leaves[path], axis, order)
    return unflatten_dict(leaves)


def _leaves(units: Sequence[Units], params: Params, name: str) -> dict[Path, Any]:
    """The parameters by path, if the units are theirs."""
    leaves: Any = flatten_dict(jax.device_get(params))
    for path, _, shape in (axis for own in units for axis in own.axes):
        found = np.shape(leaves[path]) if path in leaves else None
        if found != shape:
            raise ValueError(
                f"{name} has shape {found} at {'/'.join(path)}, expected {shape}; give "
                "one model's parameters (a client's of stacked ones), of the network "
                "whose units these are"
            )
    return leaves


def _reordered(leaf: np.ndarray, axis: int, order: np.ndarray) -> np.ndarray:
    shape = (*leaf.shape[:axis], -1, len(order), *leaf.shape[axis + 1 :])
    return leaf.reshape(shape).take(order, axis + 1).reshape(leaf.shape)


def match_units(
    units: Sequence[Units], a: Params, b: Params, *, seed: int = 0, passes: int = 100
) -> tuple[Params, list[np.ndarray]]:
    """(b with its units in the order closest to a's, that order for each group).

    Weight matching: each group in turn takes the order with the greatest inner product
    of the parameters, until none changes (Ainsworth et al., Algorithm 1). The distance
    to a never grows. A local optimum: `seed` orders the groups.

    Raises:
      ValueError: as of `permute_units`.
    """
    rng = np.random.default_rng(seed)
    ours, theirs = _leaves(units, a, "a"), _leaves(units, b, "b")
    orders = [np.arange(own.size) for own in units]
    for _ in range(passes):
        changed = False
        for g in rng.permutation(len(units)):
            score = _scores(units, g, orders, ours, theirs)
            order = _best(score, int(units[g].parts))
            now = score[np.arange(len(order)), orders[g]].sum()
            if score[np.arange(len(order)), order].sum() > now + 1e-6 * abs(now):
                orders[g], changed = order, True
        if not changed:
            break
    return permute_units(units, b, orders), orders


def _scores(
    units: Sequence[Units], g: int, orders: Sequence[np.ndarray], a: Any, b: Any
) -> np.ndarray:
    """Inner product of a's unit i and b's unit j, all others in their order, [n, n]."""
    total = np.zeros((units[g].size,) * 2)
    for path, axis, _ in units[g].axes:
        leaf = b[path]
        for other, order in zip(units, orders, strict=True):
            for at in (x.axis for x in other.axes if x.path == path):
                if (other is not units[g]) or at != axis:
                    leaf = _reordered(leaf, at, order)
        total += _units_first(a[path], axis, len(total)) @ (
            _units_first(leaf, axis, len(total)).T
        )
    return total


def _units_first(leaf: np.ndarray, axis: int, count: int) -> np.ndarray:
    """[count, all else]."""
    shape = (*leaf.shape[:axis], -1, count, *leaf.shape[axis + 1 :])
    return np.moveaxis(leaf.reshape(shape), axis + 1, 0).reshape(count, -1)


def _best(score: np.ndarray, parts: int) -> np.ndarray:
    """The order of the greatest total score that keeps the parts together."""
    if parts == 1:
        return linear_sum_assignment(score, maximize=True)[1]
    size = len(score) // parts
    blocks = score.reshape(parts, size, parts, size).swapaxes(1, 2)
    inner = np.array([[linear_sum_assignment(s, True)[1] for s in r] for r in blocks])
    value = np.take_along_axis(blocks, inner[..., None], -1).sum((-2, -1))
    outer = linear_sum_assignment(value, maximize=True)[1]
    return np.concatenate([q * size + inner[p, q] for p, q in enumerate(outer)])
