"""The options of `pfljax run`: the settings of an experiment and its method's own."""

import dataclasses
import json
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from pfljax import algorithms, registry
from pfljax.runs import settings
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
    first.add_argument("--algorithm", default=Experiment().algorithm)
    first.add_argument("--config")
    given, rest = first.parse_known_args(args)
    if given.config:
        return _from_file(given.config, rest)
    factory = algorithms.method(given.algorithm)
    hyper = registry.defaults(factory)
    fields = [_setting(f) for f in dataclasses.fields(Experiment) if f.name != "hyper"]
    fields += [_hyper(name, default) for name, default in hyper.items()]
    about = (factory.__doc__ or given.algorithm).splitlines()[0]
    doc = f"{about}\n\nmethod options: {list(hyper)}"
    _check_names(rest, {name: field.default for name, _, field in fields})
    record = dataclasses.make_dataclass("Options", fields, namespace={"__doc__": doc})
    chosen = dataclasses.asdict(tyro.cli(record, args=args, prog=prog))
    own = {name: chosen.pop(name) for name in hyper}
    told = {name: value for name, value in own.items() if value != hyper[name]}
    return Experiment(hyper=told, **chosen)


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
    kind = Annotated[field.type, tyro.conf.arg(help=field.metadata["help"])]
    return field.name, kind, dataclasses.field(default=field.default)


def _hyper(name: str, default: Any) -> tuple[str, Any, Any]:
    kind = int | None if default is None else type(default)
    kind = Annotated[kind, tyro.conf.arg(help="option of the method")]
    return name, kind, dataclasses.field(default=default)


def _from_file(file: str, rest: list[str]) -> Experiment:
    """The experiment of a config.json, in another folder if --out says so."""
    parser = ArgumentParser("pfljax run --config FILE", allow_abbrev=False)
    parser.add_argument("--out", help="run folder; default: the one in FILE")
    out = parser.parse_args(rest).out
    try:
        read = settings.from_dict(json.loads(Path(file).read_text()))
    except (OSError, ValueError) as error:
        raise ValueError(f"--config {file} cannot be read: {error}") from None
    return read.replace(out=out) if out else read
