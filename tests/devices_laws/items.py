"""The selections, channels and clocks that are checked with every family of methods.

Each is what a user would write. All that pfljax has are here, those to come as well.
"""

import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pfljax import channel
from pfljax.conformance import toy
from pfljax.core import components, factories
from pfljax.selection import SELECTIONS

CLIENTS = len(toy.SIZES)
ROUNDS = 5
COHORT = 4
DEADLINE = 4.0  # seconds: some are late in each round, others never
MODES = ("fedasync", "fedbuff:buffer=2")
# Options that fit so few clients, and those by which something happens in few rounds.
SELECTING = {
    "availability": "pattern=diurnal",
    "bernoulli": "places=5",
    "favor": "components=2,hidden=4",
    "tifl": "tiers=2,interval=2",
}
ATTACKERS = "attackers=0.3"
SENDING = {
    "sign_flip": ATTACKERS,
    "random_update": ATTACKERS,
    # Else it goes by the places of the cohort, the empty ones as well.
    "model_replacement": f"{ATTACKERS},boost=3.0",
    "alie": ATTACKERS,
    "ipm": ATTACKERS,
    "clip": "norm=0.1",
    "adaptive_clip": "norm=0.1",
    "dp": "norm=0.1,multiplier=0.1",
    "top_k": "share=0.3",
    "random_k": "share=0.3",
    "low_rank": "rank=1",
    "lost": "share=0.3",
    "trimmed_mean": "trim=0.25",
    "krum": "byzantine=0",
    "centred_clip": "radius=0.1",
}
MORE = ("adaptive_clip:norm=0.1,multiplier=0.1",)  # of one value for all
SELECTING_MORE = (  # other states and other batches than those of the defaults
    "availability:pattern=label_cycle",
    "fedsae:rule=fassa",
    "power_of_choice:loss=all",
    "tifl:tiers=2,policy=fast,retier=2",
)


class Item(NamedTuple):
    """A selection, a channel or a clock."""

    kind: str  # selection, channel, aggregation or clock
    text: str  # as a user writes it
    place: str  # of a combination, which has at most one item in each


def every() -> list[Item]:
    """All items, in the order of the table."""
    return [*selections(), *channels(), *clocks()]


def selections() -> list[Item]:
    """All selections."""
    texts = [_with_options(name, SELECTING) for name in SELECTIONS]
    texts += SELECTING_MORE
    return [Item("selection", text, "selection") for text in texts]


def channels() -> list[Item]:
    """All channels, with and without error feedback where it is offered."""
    items = []
    for name, factory in channel.CHANNELS.items():
        kind = "aggregation" if name in channel.AGGREGATIONS else "channel"
        texts = [_with_options(name, SENDING)]
        if "feedback" in factories.options(factory):
            texts = [f"{texts[0]},feedback={on}" for on in (True, False)]
            texts = [text.replace(f"{name},", f"{name}:") for text in texts]
        texts += [text for text in MORE if text.startswith(f"{name}:")]
        items += [Item(kind, text, made(text).stage) for text in texts]
    return items


def clocks() -> list[Item]:
    """Synchronous rounds without a deadline and with one, and the modes."""
    texts = ("sync", f"deadline={DEADLINE:g}", *MODES)
    return [Item("clock", text, "clock") for text in texts]


def made(text: str) -> channel.Channel:
    """The channel of this text alone."""
    choice = components.parse(text)
    return channel.CHANNELS[choice.name](**choice.options)()


def settings_of(items: tuple[Item, ...]) -> dict[str, object]:
    """Settings of an experiment with these items; its clock is `sync` without one."""
    settings: dict[str, object] = {"profile": "speed_groups:step=0.5,jitter=0.1"}
    for item in items:
        if item.kind in ("channel", "aggregation"):
            settings[item.kind] = [*settings.get(item.kind, []), item.text]
        elif item.text.startswith("deadline="):
            settings |= {"deadline": DEADLINE, "profile": sometimes_there()}
        elif item.text in MODES:
            settings |= {"mode": item.text, "profile": sometimes_there()}
        elif item.kind == "selection":
            settings["selection"] = item.text
    return settings


@cache
def sometimes_there() -> str:
    """A profile of devices that differ, of which some are not always available."""
    rng = np.random.default_rng(0)
    path = Path(_folder().name) / "devices.npz"
    np.savez(
        path,
        step=np.tile([0.3, 1.0, 2.0, 0.5], CLIENTS)[:CLIENTS],
        down=1e4 * rng.uniform(1, 2, CLIENTS),
        up=1e3 * rng.uniform(1, 2, CLIENTS),
        jitter=0.2,
        availability=np.tile([1.0, 0.6], CLIENTS)[:CLIENTS],
    )
    return f"file:path={path}"


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that is there until the process ends."""
    return tempfile.TemporaryDirectory(prefix="pfljax-devices-")


def _with_options(name: str, options: dict[str, str]) -> str:
    return f"{name}:{options[name]}" if name in options else name
