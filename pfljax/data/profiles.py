"""Devices: how fast each client computes and sends.

A client takes  download / down + steps * step + upload / up  seconds, times a lognormal
factor if the profile has jitter. These seconds are virtual: they follow only from
steps, bytes and the profile.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax.core.components import Component
from pfljax.core.factories import build, component
from pfljax.core.ranges import Count, NotNegative, Positive
from pfljax.data.files import read_npz, reading

STEP = 0.01  # seconds of a local step at speed 1
DOWN = 2.5e6  # bytes a second: 20 Mbit/s
UP = 6.25e5  # 5 Mbit/s
SPEEDS = (4.0, 2.0, 1.0, 0.5, 0.1)


# Rounds compute in float32, in which smaller numbers are 0.
_POSITIVE = (np.finfo(np.float32).tiny, np.finfo(np.float32).max)
LIMITS = {
    "step": _POSITIVE,
    "down": _POSITIVE,
    "up": _POSITIVE,
    "jitter": (0.0, 10.0),
    "availability": (np.finfo(np.float32).tiny, 1.0),
}


class Profile(NamedTuple):
    """The devices of all clients, f64[C] each."""

    step: Any  # seconds of a local step
    down: Any  # bytes a second from the server
    up: Any  # bytes a second to the server
    jitter: Any  # sigma of the lognormal factor of each turn, of median 1; 0 for none
    availability: Any  # probability that a client that is asked takes part


def expected_seconds(profile: Profile, work: Any, down: Any, up: Any) -> Any:
    """Returns the seconds of a turn of each client without jitter, f[C].

    `work` in gradients of minibatches, and `down` and `up` in bytes, are numbers, or
    arrays [C].
    """
    return down / profile.down + work * profile.step + up / profile.up


@component
def none(num_clients: int) -> None:
    """Gives clients no devices, so that rounds take no virtual time."""
    return None


@component
def equal(
    num_clients: int,
    *,
    step: Positive = STEP,
    down: Positive = DOWN,
    up: Positive = UP,
    jitter: NotNegative = 0.0,
) -> Profile:
    """Gives all clients equal devices, which are always available.

    Args:
      step: seconds of a local step.
      down: bytes a second to a client.
      up: bytes a second from it.
      jitter: sigma of the lognormal factor of each turn; 0 for none.
    """
    values = (step, down, up, jitter, 1.0)
    return Profile(*(np.full(num_clients, value, np.float64) for value in values))


@component
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
    """Gives clients the speeds 4, 2, 1, 0.5 and 0.1, in turn by their numbers.

    With `drawn` each client's speed is drawn from `seed`, uniformly.

    Args:
      step: seconds of a local step at speed 1.
      down: bytes a second to a client.
      up: bytes a second from it.
      jitter: sigma of the lognormal factor of each turn; 0 for none.
      drawn: each client's speed is drawn.
      seed: of the draws, whatever the run's.
    """
    group = np.arange(num_clients) % len(SPEEDS)
    if drawn:
        group = np.random.default_rng(seed).integers(len(SPEEDS), size=num_clients)
    devices = equal(num_clients, step=step, down=down, up=up, jitter=jitter)
    return devices._replace(step=step / np.asarray(SPEEDS)[group])


@component
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
    """Gives clients lognormal speeds and links.

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
    devices = equal(num_clients, step=step, down=down, up=up, jitter=jitter)
    return devices._replace(
        step=step * computing,
        down=down * sending,
        up=up * sending,
    )


@component
def file(num_clients: int, *, path: str) -> Profile:
    """Reads the speeds and links of clients from an .npz file.

    Each has a number a client, or is one number for all.

    Args:
      path: the .npz file.
    """
    with reading(Path(path), "write one by numpy.savez(path, step=, down=, up=)"):
        stored = read_npz(
            Path(path), ("step", "down", "up"), ("jitter", "availability"), strict=True
        )
        arrays = {"jitter": 0.0, "availability": 1.0} | stored
        return check_profile(arrays, num_clients, path)


PROFILES: dict[str, Callable[..., Profile | None]] = {
    "none": none,
    "equal": equal,
    "speed_groups": speed_groups,
    "lognormal": lognormal,
    "file": file,
}


def make(choice: Component, num_clients: int) -> Profile | None:
    """Makes the profile of a choice such as "speed_groups:jitter=0.1".

    Raises:
      ValueError: a name or an option is unknown, or a number out of its range.
    """
    devices = build("profile", PROFILES, choice, num_clients, returns=Profile)
    if devices is None:
        return None
    # A large sigma draws numbers beyond a float.
    return check_profile(devices._asdict(), num_clients, f"profile {choice.name!r}")


def check_profile(arrays: Mapping[str, Any], num_clients: int, name: str) -> Profile:
    """Makes the profile of these arrays, each f64[C] or a number.

    Raises:
      ValueError: an array has another length, or a number is out of its range.
    """
    columns = {}
    for field, (lowest, highest) in LIMITS.items():
        try:
            array = np.asarray(arrays[field], np.float64)
            column = np.broadcast_to(array, num_clients).copy()
        except ValueError:
            raise ValueError(
                f"{name}: {field} is no number, and not one for each of {num_clients} "
                "clients"
            ) from None
        wrong = ~((column >= lowest) & (column <= highest))
        if wrong.any():
            first = int(np.argmax(wrong))
            raise ValueError(
                f"{name}: {field} is {column[first]:g} at client {first}; "
                f"expected a number from {lowest:.2g} to {highest:.2g}"
            )
        columns[field] = column
    return Profile(**columns)
