"""The settings of a run as pages show them: in the groups of its config.json.

A name stands in one group only, so that the page of a run can show the groups and a
comparison can speak of settings by their names alone (`runs.config.by_name`).
"""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from pfljax.runs.config import named
from pfljax.runs.settings import HELP

UNGROUPED = ""  # title of the settings that stand in no group
# Of models whose paper could not be read, by how their names and that of their group
# begin: what is to be said behind them.
ASSUMED = {"htcnn_akt": ", widths assumed"}


def model_names(names: Sequence[str]) -> str:
    """The models or groups of models of a setting, and what is assumed of them."""
    notes = [
        note
        for beginning, note in ASSUMED.items()
        if any(name.startswith(beginning) for name in names)
    ]
    return (", ".join(names) or "none") + "".join(notes)


def model_of_each(names: Sequence[str], count: int) -> list[str]:
    """The model of each of so many clients, where models or groups are listed."""
    from pfljax.models.groups import GROUPS  # it loads Flax, which few reports need

    listed: list[str] = []
    for name in names:
        listed += GROUPS.get(name, [name])
    return [listed[client % len(listed)] for client in range(count)]


def shown(name: str, value: Any) -> Any:
    """A setting's value as pages have it."""
    if name == "models" and not isinstance(value, str):
        return model_names(value)
    is_model = name in ("model", "proxy") and value is not None
    return model_names([str(value)]) if is_model else value


def by_group(
    config: Mapping[str, Any], without: Container[str] = ()
) -> dict[str, dict[str, Any]]:
    """Tabulated settings by heading; those of the names `without` are left out.

    The method is one setting with its options, as a user gives it.
    """
    hyper = config["hyper"]
    kept = {name: hyper[name] for name in hyper if name not in without}
    settings = named({**config, "hyper": kept})
    titles = {name: title for title, names in HELP.items() for name in names}
    titled: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        if name not in without:
            group = titled.setdefault(titles.get(name, UNGROUPED), {})
            group[name] = shown(name, value)
    return titled
