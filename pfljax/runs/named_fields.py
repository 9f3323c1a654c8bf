"""Frozen records some of whose fields may not be there: they say why, and what is.

A record is made by `assign`, and its `__getattr__` is `refuse`.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

MISSING = {  # why something is not there
    "server": "the method has no one model at its server",
    "validation": "no client has validation rows; give validation=0.1",
    "best": "no client has validation rows to choose a round by; give validation=0.1",
    "auroc": "no rows of other classes were judged; give foreign=200",
}


def refuse(record: Any, name: str) -> NoReturn:
    """Says what a record has instead."""
    what = type(record).__name__
    reason = f": {MISSING[name]}" if name in MISSING else ""
    names = (known for known in vars(record) if not known.startswith("_"))
    raise AttributeError(
        f"{what} has no {name!r}{reason}; there is {', '.join(names)}", name=name
    )


def assign(record: Any, fields: Mapping[str, Any]) -> None:
    """Sets fields of a frozen record that is being made."""
    # A frozen dataclass lets its own constructor assign in this way alone.
    for name, value in fields.items():
        object.__setattr__(record, name, value)
