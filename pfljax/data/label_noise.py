"""Wrong labels at a known rate, for methods that are to bear them.

Matrices T [K, K]: row i is the distribution of what a label i turns into.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pfljax import registry
from pfljax.core.malicious import Attackers
from pfljax.registry import Share, checked


class Noise(NamedTuple):
    """How labels turn, and where."""

    matrix: np.ndarray  # f64[K, K], rows sum to 1
    tests_too: bool = False  # a client's own test rows as well
    # The share of the clients whose training rows alone turn; None: rows of all that
    # are learnt from, validation rows as well.
    attackers: float | None = None


def none(num_classes: int) -> None:
    """Labels as the data set has them."""
    return None


@checked
def pair(num_classes: int, *, rate: Share) -> Noise:
    """A label turns into the next class at this rate, the last into the first.

    Args:
      rate: share of the labels that turn.
    """
    _check_classes("pair", num_classes)
    kept = np.eye(num_classes)
    following = kept[(np.arange(num_classes) + 1) % num_classes]
    return Noise((1 - rate) * kept + rate * following)


@checked
def symmetric(num_classes: int, *, rate: Share) -> Noise:
    """A label turns at this rate, into every other class alike.

    Args:
      rate: share of the labels that turn.
    """
    _check_classes("symmetric", num_classes)
    other = rate / (num_classes - 1)
    return Noise((1 - rate - other) * np.eye(num_classes) + other)


@checked
def poison(num_classes: int, *, attackers: Attackers = 0.2) -> Noise:
    """Training labels of malicious clients alone: random, of two classes the other.

    The same clients attack in a channel (`pfljax.core.malicious`). Li et al. (Ditto),
    ICML 2021, https://arxiv.org/abs/2012.04221, attack A1.

    Args:
      attackers: share of all clients that are malicious.
    """
    _check_classes("poison", num_classes)
    if num_classes == 2:
        return pair(num_classes, rate=1.0)._replace(attackers=attackers)
    anything = np.full((num_classes, num_classes), 1 / num_classes)
    return Noise(anything, attackers=attackers)


NOISES: dict[str, Callable[..., Noise | None]] = {
    "none": none,
    "pair": pair,
    "symmetric": symmetric,
    "poison": poison,
}


def label_noise(text: str, num_classes: int) -> Noise | None:
    """The noise written as "none", "pair:rate=0.1", "symmetric:rate=0.2" or "poison".

    Raises:
        ValueError: for another name or parameter, or a rate that is no share.
    """
    choice = registry.parse(text)
    maker = registry.find("noise", NOISES, choice.name)
    registry.check("noise", choice, maker)
    return maker(num_classes, **choice.kwargs)


def _check_classes(name: str, num_classes: int) -> None:
    """Raises a ValueError for a single class, which can turn into no other."""
    if num_classes < 2:
        raise ValueError(f"noise {name!r} needs two classes, got {num_classes}")


def turn(labels: np.ndarray, matrix: np.ndarray, seed: list[int]) -> np.ndarray:
    """Labels i32[N] drawn from the rows of `matrix` [K, K] that `labels` [N] name."""
    cumulative = np.cumsum(matrix, axis=1)
    # Rounded sums end below 1, and a draw above them would name one class too many.
    cumulative[:, -1] = 1
    drawn = np.random.default_rng(seed).random(len(labels))
    turned = np.empty(len(labels), np.int32)
    for label in np.unique(labels):
        rows = labels == label
        turned[rows] = np.searchsorted(cumulative[label], drawn[rows], side="right")
    return turned
