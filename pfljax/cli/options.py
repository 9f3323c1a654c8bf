"""The options of `pfljax run`: the settings of an experiment and its method's own."""

import dataclasses
import json
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from pfljax import algorithms, registry
from pfljax.registry import Choice
from pfljax.runs import config, settings
from pfljax.runs.settings import Experiment


def values(given: Sequence[Sequence[str]]) -> dict[str, list[Any]]:
    """What --over NAME VALUE VALUE ... says: numbers, True, None, and other texts."""
    over = {}
    for name, *texts in given:
        name = name.replace("-", "_")
        if name in over:
            raise ValueError(f"--over {name} is given twice; give all values at once")
        over[name] = [registry.literal(text) for text in texts]
    return over


def experiment(args: list[str], prog: str = "pfljax run") -> Experiment:
    """The experiment of command-line options, or of --config FILE (with --out)."""
    first = ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--algorithm", default=Experiment().method.algorithm)
    first.add_argument("--config")
    given, rest = first.parse_known_args(args)
    if given.config:
        return _from_file(given.config, rest)
    factory = algorithms.method(given.algorithm)
    hyper = registry.defaults(factory)
    _check_names(rest, _defaults() | hyper)
    record = _record(given.algorithm, factory, hyper)
    chosen = tyro.cli(record, args=args, prog=prog, config=(tyro.conf.OmitArgPrefixes,))
    own = vars(getattr(chosen, given.algorithm)) if hyper else {}
    values: dict[str, Any] = {"seed": chosen.seed}
    for group in settings.GROUPS:
        values |= vars(getattr(chosen, group))
    values["hyper"] = {name: v for name, v in own.items() if v != hyper[name]}
    return Experiment(**values)


def _defaults() -> dict[str, Any]:
    """The settings that have an option, with their defaults."""
    return {name: f.default for name, f in settings.FIELDS.items() if name != "hyper"}


def _record(algorithm: str, factory: Callable, hyper: dict[str, Any]) -> type:
    """A dataclass of the settings by group, one more for the method's own options."""
    groups = [
        _group(name, record.__doc__, [_setting(f) for f in dataclasses.fields(record)])
        for name, record in settings.GROUPS.items()
    ]
    if hyper:
        about = f"Options of {algorithm} alone."
        own = [_hyper(name, default) for name, default in hyper.items()]
        groups.insert(1, _group(algorithm, about, own))
    seed = _setting(settings.FIELDS["seed"])
    doc = (factory.__doc__ or algorithm).splitlines()[0]
    namespace = {"__doc__": doc}
    return dataclasses.make_dataclass("Options", [*groups, seed], namespace=namespace)


def _group(name: str, about: str | None, fields: list) -> tuple[str, Any, Any]:
    """A field for a group: its options stand below a heading of their own in --help."""
    fields = [field for field in fields if field[0] != "hyper"]
    record = dataclasses.make_dataclass(name, fields, namespace={"__doc__": about})
    return name, record, dataclasses.field(default_factory=record)


def _check_names(args: list[str], defaults: dict[str, Any]) -> None:
    """Raises a ValueError that lists the known options if one is unknown."""
    switches = [f"no_{name}" for name, value in defaults.items() if value is False]
    names = [*defaults, *switches, "config", "help"]
    options = {f"--{name.replace('_', '-')}": name for name in names}
    for arg in args:
        if arg.startswith("--"):
            name = arg.partition("=")[0].replace("_", "-")
            registry.find("option", options, name)


def _setting(field: dataclasses.Field) -> tuple[str, Any, Any]:
    kind: Any = str if field.type is Choice else field.type
    default = str(field.default) if field.type is Choice else field.default
    kind = Annotated[kind, tyro.conf.arg(help=field.metadata["help"])]
    return field.name, kind, dataclasses.field(default=default)


def _hyper(name: str, default: Any) -> tuple[str, Any, Any]:
    kind: Any = int | None if default is None else type(default)
    return name, kind, dataclasses.field(default=default)


def _from_file(file: str, rest: list[str]) -> Experiment:
    """The experiment of a config.json, in another folder if --out says so."""
    parser = ArgumentParser("pfljax run --config FILE", allow_abbrev=False)
    parser.add_argument("--out", help="run folder; default: the one in FILE")
    out = parser.parse_args(rest).out
    try:
        read = config.from_dict(json.loads(Path(file).read_text()))
    except (OSError, ValueError) as error:
        raise ValueError(f"--config {file} cannot be read: {error}") from None
    return read.replace(out=out) if out else read
