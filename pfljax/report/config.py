"""The settings of a run, as config.json has them: by name, or in groups.

A name stands in one group only, so that the page of a run can show the groups and a
comparison can speak of settings by their names alone.
"""

from collections.abc import Container, Mapping
from typing import Any

OPTIONS = "hyper"  # the options of the method: one setting, no group
UNGROUPED = ""  # title of the settings that stand in no group


def by_group(
    config: Mapping[str, Any], without: Container[str] = ()
) -> dict[str, dict[str, Any]]:
    """Settings by group and name; those of the names `without` are left out."""
    groups: dict[str, dict[str, Any]] = {UNGROUPED: {}}
    for name, value in config.items():
        if isinstance(value, Mapping) and name != OPTIONS:
            groups[name] = {k: v for k, v in value.items() if k not in without}
        elif name not in without:
            groups[UNGROUPED][name] = value
    return groups


def by_name(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name, whatever their group."""
    settings: dict[str, Any] = {}
    for group in by_group(config).values():
        settings |= group
    return settings
