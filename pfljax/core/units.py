"""Units of a network's layers: the parameters that make them, and those that read them.

`pfljax.models.units` finds them in a model. The parameters that make a unit form a row,
with the bias last. A perceptron with 3 inputs, 2 hidden units and 5 classes has:

    units         axes                                               rows
    hidden        axis 1 of its kernel, 0 of its bias; 0 of the head  f32[2, 3 + 1]
    logits        axis 1 of the head's kernel, 0 of its bias          f32[5, 2 + 1]
"""

from typing import Any, NamedTuple

Path = tuple[str, ...]


class Axis(NamedTuple):
    """An axis of a parameter along which units lie: [pixels * units], units fastest."""

    path: Path
    axis: int
    shape: tuple[int, ...]  # of the parameter, of one model


class Units(NamedTuple):
    """Units that are permuted together, in all layers that have them as an axis."""

    size: int
    parts: int  # equal parts that a normalisation keeps together; 1 if there are none
    axes: tuple[Axis, ...]  # the first is that of the kernel that outputs them

    @property
    def module(self) -> Path:
        """The path of the layer that outputs them."""
        return self.axes[0].path[:-1]

    @property
    def outputs(self) -> tuple[Axis, ...]:
        """The axes of that layer: of its kernel, and of its bias if it has one."""
        return tuple(axis for axis in self.axes if axis.path[:-1] == self.module)

    @property
    def readers(self) -> tuple[Axis, ...]:
        """The axes of all other layers."""
        return tuple(axis for axis in self.axes if axis.path[:-1] != self.module)


def split_axis(leaf: Any, axis: int, count: int) -> Any:
    """Splits the axis [pixels * units] into two, [pixels, units]."""
    before = leaf.shape[:axis]
    after = leaf.shape[axis + 1 :]
    return leaf.reshape((*before, -1, count, *after))
