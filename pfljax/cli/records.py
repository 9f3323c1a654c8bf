"""The settings as a dataclass, for tyro makes an option of each field of one.

A group of settings is a dataclass in it, so that `--help` has a heading a group.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from typing import Annotated, Any, Literal

import tyro

from pfljax.registry import Choice, annotations, docstrings
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
    algorithm: str,
    factory: Callable | None,
    own: Mapping[str, Parameter],
    names: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> type:
    """The settings by group, and the method's `own` options.

    With the `names` of methods, `--algorithm` takes one of these alone. Settings
    `without` which a command does are no options, nor is `--config` then.
    """
    fields = []
    for name, group in settings.GROUPS.items():
        fields.append(_settings_group(name, group, names, without))
        if name == "method" and own:
            fields.append(_method_group(algorithm, factory, own))
    fields.append(_setting(settings.FIELDS["seed"]))
    if not without:
        file = Annotated[str | None, tyro.conf.arg(help=CONFIG)]
        fields.append(("config", file, dataclasses.field(default=None)))
    # By keyword alone: an option without a default may stand before others.
    return dataclasses.make_dataclass("Options", fields, kw_only=True)


def _settings_group(
    name: str, group: type, names: tuple[str, ...], without: tuple[str, ...]
) -> Field:
    """The settings of a group."""
    fields = []
    for field in dataclasses.fields(group):
        if field.name in without:
            continue
        # The method's own options have names of their own.
        if field.name != "hyper":
            fields.append(_setting(field))
        if field.name == "algorithm" and names:
            default = dataclasses.field(default=field.default)
            fields[-1] = (field.name, Literal[names], default)
    return _group(name, group.__doc__, fields)


def _method_group(
    algorithm: str, factory: Callable | None, own: Mapping[str, Parameter]
) -> Field:
    """The method's own options, each with its line, below what the method is."""
    told = docstrings.options_told(factory) if factory else {}
    fields = []
    for name, option in own.items():
        default = option.default
        if default is option.empty:
            default = dataclasses.MISSING
        line = tyro.conf.arg(help=_sentence(told.get(name, "")))
        kind = Annotated[annotations.written(option), line]
        fields.append((name, kind, dataclasses.field(default=default)))
    return _group(algorithm, _about(algorithm, factory), fields)


def _sentence(line: str) -> str:
    """The line with a capital, as those of settings begin."""
    return line[:1].upper() + line[1:]


def _about(algorithm: str, factory: Callable | None) -> str:
    """The method's paper, and the first paragraph on what it is."""
    if factory is None:
        return algorithm
    file = sys.modules[factory.__module__]
    parts = [docstrings.paragraph(file.__doc__), docstrings.paragraph(factory.__doc__)]
    return " ".join(filter(None, parts)) or algorithm


def _group(name: str, about: str | None, fields: Iterable[Field]) -> Field:
    """A field whose options stand below a heading of their own."""
    fields = list(fields)
    namespace = {"__doc__": about}
    group = dataclasses.make_dataclass(name, fields, namespace=namespace, kw_only=True)
    needed = [field for *_, field in fields if field.default is dataclasses.MISSING]
    if needed:
        return name, group, dataclasses.field()
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
