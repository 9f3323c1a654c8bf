"""Wrong labels at a known rate, for methods that are robust to them.

Row i of a matrix T [K, K] is the distribution of the label that replaces a label i.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from pfljax.core import components, factories, malicious
from pfljax.core.factories import component
from pfljax.core.malicious import Attackers
from pfljax.core.ranges import Share
from pfljax.data.arrays import Arrays
from pfljax.data.partitions.base import Partition, rank
from pfljax.data.split import TRAIN, VALIDATION, Split


class Noise(NamedTuple):
    """The probabilities of wrong labels, and the examples that get them."""

    matrix: np.ndarray  # f64[K, K], rows sum to 1
    tests_too: bool = False  # whether a client's own test examples get them as well
    # The share of clients with wrong labels, on training examples only. None is all
    # clients, on training and validation examples.
    attackers: float | None = None


@component
def none(num_classes: int) -> None:
    """Leaves the labels unchanged."""
    return None


@component
def pair(num_classes: int, *, rate: Share) -> Noise:
    """Replaces a share `rate` of the labels by the next class.

    Args:
      rate: share of wrong labels.
    """
    kept = np.eye(num_classes)
    following = kept[(np.arange(num_classes) + 1) % num_classes]
    return Noise((1 - rate) * kept + rate * following)


@component
def symmetric(num_classes: int, *, rate: Share) -> Noise:
    """Replaces a share `rate` of the labels by a random other class.

    Args:
      rate: share of wrong labels.
    """
    other = rate / (num_classes - 1)
    return Noise((1 - rate - other) * np.eye(num_classes) + other)


@component
def poison(num_classes: int, *, attackers: Attackers = 0.2) -> Noise:
    """Replaces the training labels of malicious clients by random labels.

    With two classes it takes the other one. The same clients attack in a channel
    (`pfljax.core.malicious`). Li et al. (Ditto), ICML 2021,
    https://arxiv.org/abs/2012.04221, attack A1.

    Args:
      attackers: share of all clients that are malicious.
    """
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
    """Makes the noise that a text names, such as "pair:rate=0.1" or "none".

    Raises:
        ValueError: a name or parameter is unknown, or a number is out of its range.
    """
    choice = components.parse(text)
    if choice.name != "none" and num_classes < 2:
        raise ValueError(f"noise {choice.name!r} needs two classes, got {num_classes}")
    return factories.build("noise", NOISES, choice, num_classes, returns=Noise)


def flip_labels(
    arrays: Arrays, split: Split, dealt: Partition, text: str, seed: int
) -> Arrays:
    """Flips labels of the examples that clients learn from, by the noise of a text."""
    if text != "none" and arrays.kind != "classes":
        raise ValueError(
            f"noise {text!r} changes classes, but the task is {arrays.kind!r}; choose "
            "noise 'none'"
        )
    noise = label_noise(text, arrays.num_classes)
    if noise is None:
        return arrays
    learnt = split.sizes[TRAIN] + split.sizes[VALIDATION]
    if noise.attackers is not None:
        # The same clients attack in a channel.
        attacks = malicious.draw(jax.random.key(seed), len(learnt), noise.attackers)
        learnt = split.sizes[TRAIN] * np.asarray(attacks)
    noisy = (rank(dealt.size) < np.repeat(learnt, dealt.size)) | noise.tests_too
    index = split.order[noisy]
    labels = arrays.y.copy()
    labels[index] = flip(labels[index], noise.matrix, [seed, 2])
    return arrays._replace(y=labels)


def flip(labels: np.ndarray, matrix: np.ndarray, seed: list[int]) -> np.ndarray:
    """Draws labels i32[N] from the rows of `matrix` [K, K] that `labels` [N] name."""
    cumulative = np.cumsum(matrix, axis=1)
    # Rounded sums may end below 1, and a draw above them would be no class.
    cumulative[:, -1] = 1
    drawn = np.random.default_rng(seed).random(len(labels))
    flipped = np.empty(len(labels), np.int32)
    for label in np.unique(labels):
        has_label = labels == label
        flipped[has_label] = np.searchsorted(
            cumulative[label], drawn[has_label], side="right"
        )
    return flipped
