"""Wrong labels at a known rate, for methods that are to bear them.

Matrices T [K, K]: row i is the distribution of what a label i turns into.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pfljax import registry


class Noise(NamedTuple):
    """How labels turn, and where."""

    matrix: np.ndarray  # f64[K, K], rows sum to 1
    tests_too: bool  # a client's own test rows as well


def pair(num_classes: int, rate: float) -> np.ndarray:
    """T: a label turns into the next class, the last into the first."""
    return (1 - rate) * np.eye(num_classes) + rate * np.eye(num_classes)[
        (np.arange(num_classes) + 1) % num_classes
    ]


def symmetric(num_classes: int, rate: float) -> np.ndarray:
    """T: a label turns into every other class alike."""
    other = rate / (num_classes - 1)
    return (1 - rate - other) * np.eye(num_classes) + other


MATRICES: dict[str, Callable[[int, float], np.ndarray]] = {
    "pair": pair,
    "symmetric": symmetric,
}
SWAPPED = {"pair": "symmetric", "symmetric": "pair"}


def label_noise(text: str, num_classes: int) -> Noise | None:
    """The noise written as "none" or "pair:rate=0.1", "symmetric:rate=0.2".

    With "legacy=True", what SuPerFed's code does under that name: the two kinds are
    swapped, and test labels are as noisy as the others. Its published Table 4 agrees
    with this alone. (That code also deals rows by their noisy labels; here the true
    ones decide, which at Table 4's alpha = 100 is all but the same.)

    Raises:
        ValueError: for another name or parameter, or a rate that is no share.
    """
    choice = registry.parse(text)
    known = {"none": _nothing} | dict.fromkeys(MATRICES, _chosen)
    maker = registry.find("noise", known, choice.name)
    registry.check("noise", choice, maker)
    return maker(choice.name, num_classes, **choice.kwargs)


def _nothing(name: str, num_classes: int) -> None:
    return None


def _chosen(name: str, num_classes: int, *, rate: float, legacy: bool = False) -> Noise:
    if not 0 <= rate <= 1:
        raise ValueError(f"noise {name!r}: rate is {rate}; expected 0 <= rate <= 1")
    if num_classes < 2:
        raise ValueError(f"noise {name!r} needs two classes, got {num_classes}")
    kind = SWAPPED[name] if legacy else name
    return Noise(MATRICES[kind](num_classes, rate), legacy)


def turn(labels: np.ndarray, matrix: np.ndarray, seed: list[int]) -> np.ndarray:
    """Labels i32[N] drawn from the rows of `matrix` [K, K] that `labels` [N] name."""
    upto = np.cumsum(matrix, axis=1)
    upto[:, -1] = 1  # not 1 - 1e-16
    drawn = np.random.default_rng(seed).random(len(labels))
    found = np.empty(len(labels), np.int32)
    for label in np.unique(labels):  # classes, not rows
        own = labels == label
        found[own] = np.searchsorted(upto[label], drawn[own], side="right")
    return found
