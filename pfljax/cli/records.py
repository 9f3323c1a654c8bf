"""The settings as a dataclass, for tyro makes an option of each field of one.

A group of settings is a dataclass in it, so that `--help` has a heading a group.
"""

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import tyro

from pfljax.registry import Choice
from pfljax.runs import settings

CONFIG = "Another run's config.json instead of options; only --out may stand beside it."
Field = tuple[str, Any, Any]  # as `dataclasses.make_dataclass` takes it


@dataclasses.dataclass(frozen=True)
class FromFile:
    """The options beside --config."""

    config: Annotated[str, tyro.conf.arg(help=CONFIG)]
    out: Annotated[str | None, tyro.conf.arg(help="Run folder, else the file's.")] = (
        None
    )


def of_settings(
    names: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> type:
    """The settings by group.

    With the `names` of methods, `--algorithm` takes one of these alone. Settings
    `without` which a command does are no options, nor is `--config` then.
    """
    fields = []
    for name, group in settings.GROUPS.items():
        fields.append(_settings_group(name, group, names, without))
    fields.append(_setting(settings.FIELDS["seed"]))
    if not without:
        file = Annotated[str | None, tyro.conf.arg(help=CONFIG)]
        fields.append(("config", file, dataclasses.field(default=None)))
    return dataclasses.make_dataclass("Options", fields)


def _settings_group(
    name: str, group: type, names: tuple[str, ...], without: tuple[str, ...]
) -> Field:
    """The settings of a group."""
    fields = []
    for field in dataclasses.fields(group):
        if field.name in without:
            continue
        # The method's options stand behind its name.
        if field.name != "hyper":
            fields.append(_setting(field))
        if field.name == "algorithm" and names:
            default = dataclasses.field(default=field.default)
            fields[-1] = (field.name, Literal[names], default)
    return _group(name, group.__doc__, fields)


def _group(name: str, about: str | None, fields: Iterable[Field]) -> Field:
    """A field whose options stand below a heading of their own."""
    namespace = {"__doc__": about}
    group = dataclasses.make_dataclass(name, fields, namespace=namespace)
    return name, group, dataclasses.field(default_factory=group)


def _setting(field: dataclasses.Field) -> Field:
    """The option of a setting; of a Choice, its text."""
    kind: Any = field.type
    default: Any = field.default
    if kind is Choice:
        kind = str
        default = str(default)
    elif kind == tuple[Choice, ...]:
        kind = tuple[str, ...]
    help_text = tyro.conf.arg(help=field.metadata["help"])
    return field.name, Annotated[kind, help_text], dataclasses.field(default=default)
