"""Settings of runs as pages show them."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from pfljax.report.html import Pairs, format_value
from pfljax.runs.settings import HELP

ASSUMED = "htcnn_akt"  # names of models of a paper that does not give their widths


def model_names(names: Sequence[str]) -> str:
    """Models or groups of models, and whether their widths are assumed."""
    is_assumed = any(name.startswith(ASSUMED) for name in names)
    return (", ".join(names) or "none") + (", widths assumed" if is_assumed else "")


def model_of_each(names: Sequence[str], count: int) -> list[str]:
    """The model of each of `count` clients, for the setting `models`."""
    # Here, for it loads Flax, which few reports need.
    from pfljax.models.model_groups import GROUPS

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
    """The settings of a config.json below their headings, without these names."""
    groups = []
    for title, names in HELP.items():
        shown = [n for n in names if n in settings and n not in without]
        group = {name: value_text(name, settings[name]) for name in shown}
        groups.append(Pairs(group, title.capitalize()))
    return groups
