"""Verdicts on every item with one method: held, refused, or which laws it breaks."""

from typing import NamedTuple

from devices_laws import covering, items
from devices_laws.items import Item
from devices_laws.laws import LAWS
from devices_laws.play import play, prepared

# A representative of each family; two where uploads are of other kinds: several
# exchanges in a round, stacks by architecture, models that the server tells apart.
FAMILIES = {
    "fedavg": ("fedavg",),
    "local": ("local",),
    "decoupling": ("fedrep",),
    "interpolation": ("apfl",),
    "bayesian": ("pfedvem",),
    "clustering": ("ifca",),
    "distillation": ("fedmd", "feddf"),
    "global_model": ("scaffold",),
    "meta_learning": ("per_fedavg", "pfedhn"),
    "multi_task": ("ditto", "fedamp"),
}


class Verdict(NamedTuple):
    """The result of an item with a method."""

    refused: str = ""  # why, in one line
    broken: tuple[str, ...] = ()  # laws, and how


def check_method(method: str, first: int = 0, step: int = 1) -> dict[Item, Verdict]:
    """The verdict on each item with this method.

    Every `step`th combination from the `first` is played; of items that stand in none
    of these, the verdict says only whether they are refused.
    """
    verdicts = {item: Verdict(refused(method, item)) for item in items.every()}
    taken = [item for item, verdict in verdicts.items() if not verdict.refused]
    for combination in covering.combinations(taken)[first::step]:
        if not broken(method, combination):
            continue
        for item, laws in culprits(method, combination).items():
            verdicts[item] = Verdict(broken=laws)
    return verdicts


def refused(method: str, item: Item) -> str:
    """Why the method does not go with the item; "" if it does. Nothing is compiled."""
    try:
        prepared(method, (item,))
    except ValueError as error:
        return str(error)
    return ""


def broken(method: str, combination: tuple[Item, ...]) -> tuple[str, ...]:
    """The laws that the method breaks with these items."""
    try:
        played = play(method, combination)
    except Exception as error:
        return (f"it cannot be played: {_brief(error)}",)
    laws = []
    for law in LAWS:
        try:
            law(played)
        # A law that cannot be checked is broken too.
        except Exception as error:
            laws.append(f"{law.__name__}: {_brief(error)}")
    return tuple(laws)


def culprits(method: str, combination: tuple[Item, ...]) -> dict[Item, tuple[str, ...]]:
    """The items that break laws alone; where none does, all, which do together."""
    alone = {item: broken(method, (item,)) for item in combination}
    guilty = {item: laws for item, laws in alone.items() if laws}
    if guilty:
        return guilty
    texts = " with ".join(item.text for item in combination)
    together = tuple(f"{texts}: {law}" for law in broken(method, combination))
    return dict.fromkeys(combination, together)


def _brief(error: Exception) -> str:
    words = f"{type(error).__name__}: {error}".split()
    return " ".join(words)[:300]
