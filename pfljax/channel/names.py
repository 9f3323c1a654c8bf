"""The channels by name, and `make`, which joins several of them."""

from collections.abc import Callable, Sequence

from pfljax.channel.attacks import model_replacement, random_update, sign_flip
from pfljax.channel.base import Channel
from pfljax.channel.chains import chain
from pfljax.channel.clipping import clip, gaussian
from pfljax.channel.colluding import alie, ipm
from pfljax.channel.losing import lost
from pfljax.channel.private import adaptive_clip, dp
from pfljax.channel.quantised import qsgd, sign, terngrad, uniform
from pfljax.channel.robust import (
    centred_clip,
    geometric_median,
    krum,
    median,
    norm_clip,
    trimmed_mean,
)
from pfljax.channel.sparse import low_rank, random_k, top_k
from pfljax.core import factories
from pfljax.core.components import Component

# Channels that change each upload (the setting `channel`), and robust reducers, which
# replace all uploads by one value (the setting `aggregation`).
TRANSFORMS: dict[str, Callable[..., Component]] = {
    "sign_flip": sign_flip,
    "random_update": random_update,
    "model_replacement": model_replacement,
    "alie": alie,
    "ipm": ipm,
    "clip": clip,
    "adaptive_clip": adaptive_clip,
    "dp": dp,
    "gaussian": gaussian,
    "uniform": uniform,
    "qsgd": qsgd,
    "terngrad": terngrad,
    "sign": sign,
    "top_k": top_k,
    "random_k": random_k,
    "low_rank": low_rank,
    "lost": lost,
}
AGGREGATIONS: dict[str, Callable[..., Component]] = {
    "norm_clip": norm_clip,
    "median": median,
    "trimmed_mean": trimmed_mean,
    "krum": krum,
    "geometric_median": geometric_median,
    "centred_clip": centred_clip,
}
CHANNELS = TRANSFORMS | AGGREGATIONS
PRIVATE = ("dp", "adaptive_clip")  # the server adds noise if they have a multiplier


def make(choices: Sequence[Component]) -> Channel | None:
    """Makes one channel of choices such as "clip:norm=1.0"; None if there are none.

    The channels act in the order of their stages: attack, clip, compress, lose, reduce.

    Raises:
      ValueError: a name or an option is unknown, an option is out of its range, or two
        channels cannot be combined.
    """
    channels = [
        factories.build("channel", CHANNELS, choice, returns=Channel)
        for choice in choices
    ]
    _check_together([choice.name for choice in choices], channels)
    return chain(channels) if channels else None


def _check_together(names: Sequence[str], channels: Sequence[Channel]) -> None:
    """Refuses channels that would undo each other, such as two compressors."""
    compressors = []
    reducers = []
    shares = set()
    for name, channel in zip(names, channels, strict=True):
        if channel.bits is not None:
            compressors.append(name)
        if channel.one_for_all:
            reducers.append(name)
        if channel.attackers:
            shares.add(channel.attackers)
    private = [name for name in reducers if name in PRIVATE]
    if private and compressors:
        raise ValueError(
            f"channel {private[0]!r} needs changes that are no longer than its norm, "
            f"but {compressors[0]!r} changes their length; give one of the two"
        )
    for kind, listed in (("compressor", compressors), ("robust reducer", reducers)):
        if len(listed) > 1:
            raise ValueError(
                f"channels {' and '.join(listed)} are each a {kind}; give one of them"
            )
    if len(shares) > 1:
        raise ValueError(
            f"channels have attackers {' and '.join(map(str, sorted(shares)))}; give "
            "all of them the same share, since they have the same malicious clients"
        )
