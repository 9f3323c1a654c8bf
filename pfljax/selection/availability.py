"""Cohorts of available clients: by hour, by device, by data, or by a trace."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.factories import component
from pfljax.core.keys import derive
from pfljax.core.ranges import BELOW_ONE, AtLeastOne, Count
from pfljax.core.types import Array, Cohort, Key, Metrics
from pfljax.selection.base import Selection
from pfljax.selection.draws import among, require_cohort

Pattern = Literal[
    "homogeneous",
    "lognormal",
    "diurnal",
    "more_examples",
    "fewer_examples",
    "labels",
    "label_count",
    "label_cycle",
    "trace",
]
BY_ROUND = ("diurnal", "label_cycle", "trace")
KEY = "available"  # the array of a trace's file


@component
def availability(
    cohort: AtLeastOne,
    sizes: np.ndarray,
    least_label: np.ndarray,
    greatest_label: np.ndarray,
    label_count: np.ndarray,
    *,
    pattern: Pattern = "lognormal",
    beta: Annotated[float, BELOW_ONE] = 0.5,
    period: AtLeastOne = 24,
    file: str | None = None,
    devices: Count = 0,
) -> Selection:
    """Selects available clients uniformly; if they are too few, places stay empty.

    A client is available with a probability that follows the pattern, as in easyFL:

        homogeneous  1 - beta
        lognormal    T / max T,  T of lognormal(0, -ln(1 - beta)) a client
        diurnal      lognormal's, times 0.4 sin(2 pi round / period) + 0.5
        more_examples    (n / max n)^beta,  n its training examples
        fewer_examples   (n / min n)^-beta
        labels       1 - beta + beta (its least label) / (K - 1)
        label_count  1 - beta + beta (number of its labels) / K
        label_cycle  1 if (1 + round mod period) / period is between its least and its
                     greatest label, each over K - 1; otherwise 1 - beta

    With beta = 0 all but diurnal are `uniform`. The pattern "trace" reads the available
    clients of each round from the array `available`, bool[T, C], of a `file`, and
    begins again after the last. Patterns that change with the round have it as their
    state. It takes O(C) work.

    Args:
      pattern: one of those above, or "trace" for those of a file.
      beta: larger for greater differences between clients; 0 is `uniform`.
      period: rounds of a day.
      file: an .npz file with `available`, bool[T, C].
      devices: seed of T, apart from that of the run.
    """
    num_clients = len(sizes)
    require_cohort(cohort, num_clients)
    if (pattern == "trace") != (file is not None):
        raise ValueError(
            f"availability: pattern is {pattern!r} and file is {file!r}; expected a "
            "file with pattern=trace, and with no other"
        )
    if file is not None:
        chance = _by_trace(read_trace(file, cohort, num_clients))
    elif pattern == "label_cycle":
        chance = _by_cycle(least_label, greatest_label, beta, period)
    else:
        share = least_label if pattern == "labels" else label_count
        constant = _probability(pattern, beta, sizes, share, devices)
        chance = _by_hour(constant, pattern, period)
    return _draw_by(chance, cohort, num_clients, by_round=pattern in BY_ROUND)


Chance = Callable[[Any], Array]  # round -> the probability of each client, f32[C]


def _draw_by(
    chance: Chance, cohort: int, num_clients: int, by_round: bool
) -> Selection:
    """Draws clients that are available by chance; the state is the round, if any."""

    def choose(round_: Any, key: Key) -> Array:
        # Draws are below 1, so that a client of probability 1 is always available.
        lot = jax.random.uniform(derive(key, "there"), (num_clients,))
        return among(derive(key, "members"), lot < chance(round_), cohort)

    def next_round(round_: Array, members: Cohort, metrics: Metrics) -> Array:
        return round_ + 1

    if not by_round:
        return Selection(cohort=cohort, choose=choose)
    return Selection(
        cohort=cohort, choose=choose, init=lambda: jnp.int32(0), update=next_round
    )


def _by_trace(trace: np.ndarray) -> Chance:
    table = jnp.asarray(trace, jnp.float32)
    return lambda round_: table[round_ % len(table)]


def _by_hour(probability: np.ndarray, pattern: Pattern, period: int) -> Chance:
    constant = jnp.asarray(probability, jnp.float32)

    def chance(round_: Any) -> Array:
        if pattern != "diurnal":
            return constant
        # The hour first: a sine of a large number has few digits left.
        hour = (round_ % period) / period
        return constant * (0.4 * jnp.sin(2 * jnp.pi * hour) + 0.5)

    return chance


def _by_cycle(
    least_label: np.ndarray, greatest_label: np.ndarray, beta: float, period: int
) -> Chance:
    # In parts of a period: whole numbers, and the ends of a range are exact.
    first = jnp.asarray(np.ceil(period * np.asarray(least_label) - 1e-6), jnp.int32)
    last = jnp.asarray(np.floor(period * np.asarray(greatest_label) + 1e-6), jnp.int32)

    def chance(round_: Array) -> Array:
        phase = 1 + round_ % period
        return jnp.where((first <= phase) & (phase <= last), 1.0, 1 - beta)

    return chance


def _probability(
    pattern: Pattern,
    beta: float,
    sizes: np.ndarray,
    label_share: np.ndarray,
    devices: int,
) -> np.ndarray:
    """Returns the probability of each client, f64[C], without the hour's factor."""
    size = np.maximum(np.asarray(sizes, np.float64), 1)
    if pattern == "homogeneous":
        return np.full(len(size), 1 - beta)
    if pattern == "more_examples":
        return (size / size.max()) ** beta
    if pattern == "fewer_examples":
        return (size / size.min()) ** -beta
    if pattern in ("labels", "label_count"):
        return 1 - beta + beta * np.asarray(label_share, np.float64)
    draw = np.random.default_rng(devices)
    times = draw.lognormal(0, -np.log1p(-beta), len(size))
    return times / times.max()


def read_trace(file: str, cohort: int, num_clients: int) -> np.ndarray:
    """Reads the array `available`, bool[T, C], of a .npz file.

    Raises:
      ValueError: there is no such array, or one of another shape, or too few ones.
    """
    expected = f"an .npz file with {KEY}, bool[rounds, {num_clients}]"
    try:
        with np.load(file, allow_pickle=False) as stored:
            array = np.asarray(stored[KEY])
    # What is no archive raises errors of files, of zips, of pickles and of arrays.
    except Exception as error:
        raise ValueError(
            f"availability: {file} cannot be read ({type(error).__name__}); expected "
            f"{expected}"
        ) from None
    if array.ndim != 2 or array.shape[1] != num_clients or not len(array):
        raise ValueError(
            f"availability: {KEY} in {file} has shape {list(array.shape)}; expected "
            f"{expected}"
        )
    if not np.isin(array, (0, 1)).all():
        raise ValueError(
            f"availability: {KEY} in {file} has other values than 0 and 1; expected "
            f"{expected}"
        )
    most = int(array.sum(1).max())
    if most < cohort:
        raise ValueError(
            f"availability: the cohort is {cohort}, but at most {most} clients of "
            f"{file} are available at once; choose a smaller cohort"
        )
    return array
