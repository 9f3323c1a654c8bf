"""Settings of runs as pages show them."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from pfljax.report.html import Pairs, format_value
from pfljax.runs import names
from pfljax.runs.settings import HELP

FACTS = ("dataset", "partition", "model", "models")  # of a page's header


def model_names(models: Sequence[str]) -> str:
    """Models or groups of models, and whether their widths are assumed."""
    text = ", ".join(models) or "none"
    return text + describe_widths(text)


def describe_widths(models: str) -> str:
    """A note on models of a paper that does not give their widths, else ""."""
    return ", widths assumed" if "htcnn_akt" in models else ""


def model_of_each(models: Sequence[str], count: int) -> list[str]:
    """The model of each of `count` clients, for the setting `models`."""
    # Here, for it loads Flax, which few reports need.
    from pfljax.models.model_groups import GROUPS

    each = [model for name in models for model in GROUPS.get(name, [name])]
    return [each[client % len(each)] for client in range(count)]


def value_text(name: str, value: Any) -> str:
    """The value of a setting as pages show it."""
    if name in ("model", "models", "proxy") and value is not None:
        return model_names([value] if isinstance(value, str) else value)
    return format_value(value)


def problem_facts(settings: Mapping[str, Any]) -> list[str]:
    """The data and the model, as far as `settings` has them."""
    return [
        f"{name} {names.short(value_text(name, settings[name]))}"
        for name in FACTS
        if settings.get(name)
    ]


def settings_by_group(
    settings: Mapping[str, Any], without: Container[str] = ()
) -> list[Pairs]:
    """The settings of a config.json below their headings, without these names."""
    groups = []
    for title, group in HELP.items():
        shown = [n for n in group if n in settings and n not in without]
        texts = {name: value_text(name, settings[name]) for name in shown}
        groups.append(Pairs(texts, title.capitalize()))
    return groups
