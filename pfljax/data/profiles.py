"""Devices: how fast each client computes and sends, by client.

What a client takes is  download / down + steps * step + upload / up  seconds, times a
lognormal factor where the profile has jitter. Nothing of it is measured here: seconds
are virtual, and follow from steps, bytes and the profile alone.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from pfljax.registry import Choice, Count, NotNegative, Positive, checked, find
from pfljax.registry import check as check_choice
from pfljax.runtime.files import DAMAGE

STEP = 0.01  # seconds of a local step at speed 1
DOWN = 2.5e6  # bytes a second: 20 Mbit/s
UP = 6.25e5  # 5 Mbit/s
SPEEDS = (4.0, 2.0, 1.0, 0.5, 0.1)


class Profile(NamedTuple):
    """The devices of all clients, f64[C] each."""

    step: Any  # seconds of a local step
    down: Any  # bytes a second from the server
    up: Any  # bytes a second to the server
    jitter: Any  # sigma of the lognormal factor of each turn, of median 1; 0 for none
    availability: Any  # probability that a client that is asked takes part


def expected_seconds(profile: Profile, steps: Any, down: Any, up: Any) -> Any:
    """Seconds of a turn of each client without jitter, f[C].

    `steps` are those of the turn, `down` and `up` bytes; numbers, or by client.
    """
    return down / profile.down + steps * profile.step + up / profile.up


def uniform(
    num_clients: int,
    step: float = STEP,
    down: float = DOWN,
    up: float = UP,
    jitter: float = 0.0,
) -> Profile:
    """Clients of equal devices, which are always available."""

    def of_all(value: float) -> np.ndarray:
        return np.full(num_clients, value, np.float64)

    return Profile(
        step=of_all(step),
        down=of_all(down),
        up=of_all(up),
        jitter=of_all(jitter),
        availability=of_all(1.0),
    )


def none(num_clients: int) -> None:
    """No devices: rounds take no virtual seconds."""
    return None


@checked
def equal(
    num_clients: int,
    *,
    step: Positive = STEP,
    down: Positive = DOWN,
    up: Positive = UP,
    jitter: NotNegative = 0.0,
) -> Profile:
    """All devices alike.

    Args:
      step: seconds of a local step.
      down: bytes a second to a client.
      up: bytes a second from it.
      jitter: sigma of the lognormal factor of each turn; 0 for none.
    """
    return uniform(num_clients, step, down, up, jitter)


@checked
def speed_groups(
    num_clients: int,
    *,
    step: Positive = STEP,
    down: Positive = DOWN,
    up: Positive = UP,
    jitter: NotNegative = 0.0,
    drawn: bool = False,
    seed: Count = 0,
) -> Profile:
    """Five groups of speeds 4, 2, 1, .5 and .1, by client number modulo five.

    With `drawn` each client's group is drawn from `seed`, uniformly.

    Args:
      step: seconds of a local step at speed 1.
      down: bytes a second to a client.
      up: bytes a second from it.
      jitter: sigma of the lognormal factor of each turn; 0 for none.
      drawn: each client's group is drawn.
      seed: of the draws, whatever the run's.
    """
    group = np.arange(num_clients) % len(SPEEDS)
    if drawn:
        group = np.random.default_rng(seed).integers(len(SPEEDS), size=num_clients)
    devices = uniform(num_clients, step, down, up, jitter)
    return devices._replace(step=step / np.asarray(SPEEDS)[group])


@checked
def lognormal(
    num_clients: int,
    *,
    step: Positive = STEP,
    down: Positive = DOWN,
    up: Positive = UP,
    sigma: NotNegative = 1.0,
    jitter: NotNegative = 0.0,
    seed: Count = 0,
) -> Profile:
    """Steps and links times lognormal factors of median 1, drawn from `seed`.

    A device has one factor for its steps, and one for both ways of its link.

    Args:
      step: seconds of a local step, in the median.
      down: bytes a second to a client.
      up: bytes a second from it.
      sigma: spread of the devices.
      jitter: sigma of the lognormal factor of each turn; 0 for none.
      seed: of the draws, whatever the run's.
    """
    noise = np.random.default_rng(seed).standard_normal((2, num_clients))
    computing, sending = np.exp(sigma * noise)
    devices = uniform(num_clients, step, down, up, jitter)
    return devices._replace(
        step=step * computing,
        down=down * sending,
        up=up * sending,
    )


@checked
def file(num_clients: int, *, path: str) -> Profile:
    """The arrays step, down, up, and jitter and availability if there, of an .npz file.

    Each has a number a client, or is one number for all.

    Args:
      path: of the .npz file.
    """
    try:
        with np.load(path) as arrays:
            given = {name: arrays[name] for name in arrays.files}
    except (OSError, AttributeError, *DAMAGE):
        raise ValueError(
            f"the profile {path} is not there, or no .npz file of arrays; write one "
            "with numpy.savez(path, step=..., down=..., up=...)"
        ) from None
    given = {"jitter": 0.0, "availability": 1.0} | given
    known = set(Profile._fields)
    if set(given) != known:
        lacking = [f"lacks {name}" for name in sorted(known - set(given))]
        unknown = [f"has {name}" for name in sorted(set(given) - known)]
        raise ValueError(
            f"the profile {path} {', '.join(lacking + unknown)}; expected step, down, "
            "up, and jitter and availability if they are not 0 and 1"
        )
    return checked_profile(given, num_clients, f"the profile {path}")


PROFILES: dict[str, Callable[..., Profile | None]] = {
    "none": none,
    "equal": equal,
    "speed_groups": speed_groups,
    "lognormal": lognormal,
    "file": file,
}


def make(choice: Choice, num_clients: int) -> Profile | None:
    """The profile of a choice such as "speed_groups:jitter=0.1"; None for "none".

    Raises:
      ValueError: a name or an option is unknown, or a number out of its range.
    """
    factory = find("profile", PROFILES, choice.name)
    check_choice("profile", choice, factory)
    devices = factory(num_clients, **choice.kwargs)
    if devices is None:
        return None
    # Also of drawn ones: a large sigma leaves numbers that no float holds.
    return checked_profile(devices._asdict(), num_clients, f"profile {choice.name!r}")


def checked_profile(arrays: Mapping[str, Any], num_clients: int, name: str) -> Profile:
    """The profile of these arrays, each f64[C].

    Raises:
      ValueError: an array has another length, or a number is out of its range.
    """
    by_client = {}
    for field in Profile._fields:
        by_client[field] = _by_client(arrays[field], num_clients, f"{name}: {field}")
    return Profile(**by_client)


def _by_client(values: Any, num_clients: int, name: str) -> np.ndarray:
    """A number a client, known to be right."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} holds no numbers; expected {num_clients}") from None
    if array.shape not in ((), (num_clients,)):
        raise ValueError(
            f"{name} has shape {list(array.shape)}, but {num_clients} clients train; "
            "give a number a client, or one for all"
        )
    field = name.rpartition(" ")[2]
    is_right, expected = _RANGES.get(field, _POSITIVE)
    wrong = ~is_right(array)
    if wrong.any():
        number = array[wrong].ravel()[0]
        first = int(np.argmax(wrong))
        raise ValueError(f"{name} is {number:g} at client {first}; expected {expected}")
    return np.broadcast_to(array, num_clients).copy()


def _is_finite(array: np.ndarray) -> np.ndarray:
    """Whether float32, in which rounds compute, holds it: neither NaN nor infinite."""
    return np.isfinite(array) & (np.abs(array) <= np.finfo(np.float32).max)


_POSITIVE = (
    lambda array: _is_finite(array) & (array >= np.finfo(np.float32).tiny),
    "a finite number > 0",
)
_RANGES: dict[str, Any] = {
    "jitter": (lambda array: (array >= 0) & (array <= 10), "a number from 0 to 10"),
    "availability": (
        lambda array: (array > 0) & (array <= 1),
        "a number > 0 and at most 1",
    ),
}
