"""The settings as a dataclass, for tyro makes an option of each field of one.

A group of settings is a dataclass in it, so that `--help` has a heading a group.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import tyro

from pfljax.registry import Choice
from pfljax.runs import settings
from pfljax.runs.settings import Experiment

CONFIG = (
    "A run's config.json, whose settings are the defaults here. Options beside it go "
    "before the file: `--config FILE --rounds 200 --out FOLDER`. The folder is the "
    "file's too, unless --out names another; a sweep's is not."
)
Field = tuple[str, Any, Any]  # as `dataclasses.make_dataclass` takes it
Defaults = Mapping[str, Any]  # of settings by name


def of_settings(
    names: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    of: Experiment | None = None,
) -> type:
    """The settings by group.

    With the `names` of methods, `--algorithm` takes one of these alone. Settings
    `without` which a command does are no options, nor is `--config` then. The defaults
    are the settings `of` an experiment, if there is one.
    """
    defaults = _defaults(of or Experiment())
    fields = []
    for name, group in settings.GROUPS.items():
        fields.append(_settings_group(name, group, names, without, defaults))
    fields.append(_setting(settings.FIELDS["seed"], defaults))
    if not without:
        file = Annotated[str | None, tyro.conf.arg(help=CONFIG)]
        fields.append(("config", file, dataclasses.field(default=None)))
    return dataclasses.make_dataclass("Options", fields)


def _defaults(experiment: Experiment) -> Defaults:
    """The settings by name, the method's with its options."""
    method = Choice(experiment.method.algorithm, experiment.method.hyper)
    return settings.flat(experiment) | {"algorithm": str(method)}


def _settings_group(
    name: str,
    group: type,
    names: tuple[str, ...],
    without: tuple[str, ...],
    defaults: Defaults,
) -> Field:
    """The settings of a group."""
    fields = []
    for field in dataclasses.fields(group):
        if field.name in without:
            continue
        # The method's options stand behind its name.
        if field.name != "hyper":
            fields.append(_setting(field, defaults))
        if field.name == "algorithm" and names:
            default = dataclasses.field(default=field.default)
            fields[-1] = (field.name, Literal[names], default)
    return _group(name, group.__doc__, fields)


def _group(name: str, about: str | None, fields: Iterable[Field]) -> Field:
    """A field whose options stand below a heading of their own."""
    namespace = {"__doc__": about}
    group = dataclasses.make_dataclass(name, fields, namespace=namespace)
    return name, group, dataclasses.field(default_factory=group)


def _setting(field: dataclasses.Field, defaults: Defaults) -> Field:
    """The option of a setting; of a Choice, its text."""
    kind: Any = field.type
    default: Any = defaults[field.name]
    if kind is Choice:
        kind = str
        default = str(default)
    elif kind == tuple[Choice, ...]:
        kind = tuple[str, ...]
        default = tuple(map(str, default))
    help_text = tyro.conf.arg(help=field.metadata["help"])
    return field.name, Annotated[kind, help_text], dataclasses.field(default=default)
