"""Cohorts of the clients that are there: by hour, by device, by rows, or by a trace."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from pfljax.core.keys import derive
from pfljax.core.types import Array, Cohort, Key, Metrics
from pfljax.registry import BELOW_ONE, AtLeastOne, Count, checked
from pfljax.selection.base import Selection, learns_nothing, nothing
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


@checked
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
    """`cohort` of the clients that are available, uniformly; places may stay empty.

    A client is there with a probability, as in easyFL; 0 for `beta` is `uniform`:

        homogeneous  1 - beta
        lognormal    T / max T,  T of lognormal(0, -ln(1 - beta)) a client
        diurnal      lognormal's, times .4 sin(2 pi round / period) + .5
        more_examples    (n / max n)^beta,  n its training rows
        fewer_examples   (n / min n)^-beta
        labels       1 - beta + beta (its least label) / (K - 1)
        label_count  1 - beta + beta (number of its labels) / K
        label_cycle  1 where r is from (its least label) / (K - 1) to (its greatest) /
                     (K - 1), else 1 - beta;  r = (1 + round mod period) / period

    diurnal is never `uniform`. `devices` is the seed of T, whatever the run's. A
    "trace" is the array `available`, bool[T, C], of the `file` .npz: who is there in
    each round, from the first again after the last. Only patterns by round have a
    state, the round. O(C) work.

    Args:
      pattern: by what clients are there: see above, or "trace" of a file.
      beta: how unlike clients are; 0 is `uniform`.
      period: rounds of a day.
      file: an .npz with `available`, bool[T, C].
      devices: seed of who is there, whatever the run's.
    """
    num_clients = len(sizes)
    require_cohort(cohort, num_clients)
    if (pattern == "trace") != (file is not None):
        raise ValueError(
            f"availability: pattern is {pattern!r} and file is {file!r}; expected a "
            "file with pattern=trace, and with no other"
        )
    if file is not None:
        there = _of_trace(read_trace(file, cohort, num_clients))
    elif pattern == "label_cycle":
        there = _of_cycle(least_label, greatest_label, beta, period)
    else:
        share = least_label if pattern == "labels" else label_count
        constant = _probability(pattern, beta, sizes, share, devices)
        there = _of_coins(jnp.asarray(constant, jnp.float32), pattern, period)

    def choose(round_: Any, key: Key) -> Array:
        eligible = there(round_, derive(key, "there"))
        return among(derive(key, "members"), eligible, cohort)

    def next_round(round_: Array, members: Cohort, metrics: Metrics) -> Array:
        return round_ + 1

    by_round = pattern in BY_ROUND
    return Selection(
        cohort=cohort,
        choose=choose,
        init=(lambda: jnp.int32(0)) if by_round else nothing,
        update=next_round if by_round else learns_nothing,
    )


There = Callable[[Any, Key], Array]  # (round, key) -> bool[C]


def _of_trace(trace: np.ndarray) -> There:
    rows = jnp.asarray(trace)

    def there(round_: Array, key: Key) -> Array:
        return rows[round_ % len(rows)]

    return there


def _of_coins(probability: Array, pattern: Pattern, period: int) -> There:
    def there(round_: Any, key: Key) -> Array:
        chance = probability
        if pattern == "diurnal":
            # The hour first: a sine of a large number has few digits left.
            hour = (round_ % period) / period
            chance = chance * (0.4 * jnp.sin(2 * jnp.pi * hour) + 0.5)
        # A number below 1: who has the probability 1 is always there.
        return jax.random.uniform(key, chance.shape) < chance

    return there


def _of_cycle(
    least_label: np.ndarray,
    greatest_label: np.ndarray,
    beta: float,
    period: int,
) -> There:
    # In parts of a period: whole numbers, and the ends of a range are exact.
    first = jnp.asarray(np.ceil(period * np.asarray(least_label) - 1e-6), jnp.int32)
    last = jnp.asarray(np.floor(period * np.asarray(greatest_label) + 1e-6), jnp.int32)

    def there(round_: Array, key: Key) -> Array:
        phase = 1 + round_ % period
        chance = jnp.where((first <= phase) & (phase <= last), 1.0, 1 - beta)
        return jax.random.uniform(key, chance.shape) < chance

    return there


def _probability(
    pattern: Pattern,
    beta: float,
    sizes: np.ndarray,
    label_share: np.ndarray,
    devices: int,
) -> np.ndarray:
    """The probability of each client, f64[C]; of diurnal without the hour's factor."""
    rows = np.maximum(np.asarray(sizes, np.float64), 1)
    if pattern == "homogeneous":
        return np.full(len(rows), 1 - beta)
    if pattern == "more_examples":
        return (rows / rows.max()) ** beta
    if pattern == "fewer_examples":
        return (rows / rows.min()) ** -beta
    if pattern in ("labels", "label_count"):
        return 1 - beta + beta * np.asarray(label_share, np.float64)
    draw = np.random.default_rng(devices)
    times = draw.lognormal(0, -np.log1p(-beta), len(rows))
    return times / times.max()


def read_trace(file: str, cohort: int, num_clients: int) -> np.ndarray:
    """The array `available`, bool[T, C], of a .npz file.

    Raises:
      ValueError: there is no such array, or one of another shape, or nobody is there.
    """
    array = _read(file)
    if array.ndim != 2 or array.shape[1] != num_clients or not len(array):
        raise ValueError(
            f"availability: {KEY} in {file} has shape {list(array.shape)}; expected "
            f"[rounds, {num_clients}], a column a client"
        )
    if not np.isin(array, (0, 1)).all():
        raise ValueError(
            f"availability: {KEY} in {file} has other values than 0 and 1; expected "
            "bool[rounds, clients]"
        )
    most = int(array.sum(1).max())
    if most == 0:
        raise ValueError(
            f"availability: nobody is ever available in {file}; expected ones where "
            "clients are"
        )
    if most < cohort:
        raise ValueError(
            f"availability: the cohort is {cohort}, but at most {most} clients of "
            f"{file} are available at once; choose a cohort of at most that"
        )
    return array.astype(bool)


def _read(file: str) -> np.ndarray:
    wanted = f"a .npz file with an array {KEY!r}: np.savez(file, {KEY}=array)"
    if not Path(file).is_file():
        raise ValueError(f"availability: there is no file {file}; expected {wanted}")
    try:
        with np.load(file, allow_pickle=False) as stored:
            return np.asarray(stored[KEY])
    # What is no archive raises errors of zip files, of pickles and of arrays.
    except Exception:
        raise ValueError(f"availability: {file} is not {wanted}") from None
