"""Settings of runs as pages show them."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from pfljax.report.html import Pairs, format_value
from pfljax.runs.config import join_options
from pfljax.runs.settings import HELP

# What is said behind models whose paper could not be read, by how their names begin.
ASSUMED = {"htcnn_akt": ", widths assumed"}


def model_names(names: Sequence[str]) -> str:
    """Models or groups of models, and what is assumed of them."""
    notes = [
        note
        for beginning, note in ASSUMED.items()
        if any(name.startswith(beginning) for name in names)
    ]
    return (", ".join(names) or "none") + "".join(notes)


def model_of_each(names: Sequence[str], count: int) -> list[str]:
    """The model of each of `count` clients, for the setting `models`."""
    from pfljax.models.model_groups import (
        GROUPS,  # it loads Flax, which few reports need
    )

    models = [model for name in names for model in GROUPS.get(name, [name])]
    return [models[client % len(models)] for client in range(count)]


def value_text(name: str, value: Any) -> str:
    """The value of a setting as pages show it."""
    if name in ("model", "models", "proxy") and value is not None:
        return model_names([value] if isinstance(value, str) else value)
    return format_value(value)


def settings_by_group(
    settings: Mapping[str, Any], without: Container[str] = ()
) -> list[Pairs]:
    """Tabulated settings below their headings, without those of these names."""
    hyper = {n: v for n, v in settings["hyper"].items() if n not in without}
    headings = {name: title for title, names in HELP.items() for name in names}
    groups: dict[str, dict[str, str]] = {}
    for name, value in join_options({**settings, "hyper": hyper}).items():
        if name not in without:
            group = groups.setdefault(headings.get(name, ""), {})
            group[name] = value_text(name, value)
    return [Pairs(group, title.capitalize()) for title, group in groups.items()]
