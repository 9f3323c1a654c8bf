"""The settings of a run as pages show them: in the groups of its config.json.

A name stands in one group only, so that the page of a run can show the groups and a
comparison can speak of settings by their names alone (`runs.config.by_name`).
"""

from collections.abc import Container, Mapping
from typing import Any

UNGROUPED = ""  # title of the settings that stand in no group


def by_group(
    nested: Mapping[str, Any], without: Container[str] = ()
) -> dict[str, dict[str, Any]]:
    """Settings by group and name; those of the names `without` are left out."""
    # First, for a page begins with what belongs to no group.
    groups: dict[str, dict[str, Any]] = {UNGROUPED: {}}
    for group, value in nested.items():
        if isinstance(value, Mapping):
            settings = value
            title = group
        else:
            settings = {group: value}
            title = UNGROUPED
        kept = {name: settings[name] for name in settings if name not in without}
        groups.setdefault(title, {}).update(kept)
    return groups
