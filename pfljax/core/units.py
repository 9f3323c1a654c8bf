"""Units of a network's layers: which parameters belong to them, and which read them.

`pfljax.models.units` says what they are of a model. A unit's own parameters make a row,
its bias last. Of a perceptron of 3 inputs, 2 hidden units and 5 classes:

    units of      axes                                            rows
    the hidden    its kernel's 1, its bias's 0; the head's 0      f32[2, 3 + 1]
    the logits    the head's kernel's 1, its bias's 0             f32[5, 2 + 1]
"""

from typing import Any, NamedTuple

Path = tuple[str, ...]


class Axis(NamedTuple):
    """Where units stand: an axis [pixels * units] of a parameter, units fastest."""

    path: Path
    axis: int
    shape: tuple[int, ...]  # of the parameter, of one model


class Units(NamedTuple):
    """Units that are permuted together."""

    size: int
    parts: int  # equal parts that a normalisation keeps together; 1 if free
    axes: tuple[Axis, ...]  # the first is that of the kernel that puts them out

    @property
    def module(self) -> Path:
        """The path of the layer that puts them out."""
        return self.axes[0].path[:-1]

    @property
    def own(self) -> tuple[Axis, ...]:
        """The axes of that layer: its kernel's, and its bias's if it has one."""
        return tuple(axis for axis in self.axes if axis.path[:-1] == self.module)

    @property
    def readers(self) -> tuple[Axis, ...]:
        """The axes of all other layers."""
        return tuple(axis for axis in self.axes if axis.path[:-1] != self.module)


def units_apart(leaf: Any, axis: int, count: int) -> Any:
    """The axis [pixels * units] as two, [pixels, units]."""
    before = leaf.shape[:axis]
    after = leaf.shape[axis + 1 :]
    return leaf.reshape((*before, -1, count, *after))
