"""Few combinations of items, so that each item stands in one of them at least."""

from collections import Counter

from devices_laws.items import MODES, Item
from pfljax import channel, selection
from pfljax.core import components
from pfljax.simulate import privacy
from selecting import made as made_selection

PLACES = ("clock", "clip", "selection", "compress", "reduce", "attack", "lose")
ALWAYS = ("clock", "selection")  # no run is without


def combinations(items: list[Item]) -> list[tuple[Item, ...]]:
    """Combinations of these items in which each of them stands.

    A clock and a selection that stand in many are as varied as can be.
    """
    uses = Counter(dict.fromkeys(items, 0))
    covering = []
    while any(uses[item] == 0 for item in items):
        combination: tuple[Item, ...] = ()
        for place in PLACES:
            combination = _with_one(combination, place, uses)
        if all(uses[item] for item in combination):
            raise ValueError(
                "no combination has "
                + ", ".join(item.text for item in items if not uses[item])
            )
        uses.update(combination)
        covering.append(combination)
    return covering


def _with_one(
    combination: tuple[Item, ...], place: str, uses: Counter[Item]
) -> tuple[Item, ...]:
    """The combination with the item of this place that was used least, if any fits."""
    fitting = []
    for item in uses:
        if item.place != place or not stand_together((*combination, item)):
            continue
        # Asynchronous rounds leave most others out: once is enough.
        again = uses[item] > 0 and (place not in ALWAYS or item.text in MODES)
        if not again:
            fitting.append(item)
    if not fitting:
        return combination
    return (*combination, min(fitting, key=uses.__getitem__))


def stand_together(items: tuple[Item, ...]) -> bool:
    """Whether a run may have all of these, whatever its method."""
    sending = [item for item in items if item.kind in ("channel", "aggregation")]
    try:
        through = channel.make([components.parse(item.text) for item in sending])
    except ValueError:
        return False
    choices = [components.parse(i.text) for i in items if i.kind == "selection"]
    is_drawn = any(choice.name == "bernoulli" for choice in choices)
    # Noise at the server needs a cohort that no client changes, and no absent device.
    channels = tuple(components.parse(i.text) for i in items if i.kind == "channel")
    others = any(choice.name not in privacy.SELECTIONS for choice in choices)
    others |= any(item.kind == "clock" and item.text != "sync" for item in items)
    if others and privacy.find_mechanism(channels) is not None:
        return False
    if not any(item.text in MODES for item in items):
        return True
    if through is not None and through.receive is not channel.as_received:
        return False
    if through is not None and through.arrives is not None:
        return False
    # Its places are more than the cohort, which is who trains at any time.
    if is_drawn:
        return False
    chosen = [made_selection(choice.name, **choice.options) for choice in choices]
    return not any(each.replacement or selection.learns(each) for each in chosen)
