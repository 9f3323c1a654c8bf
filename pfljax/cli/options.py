"""The options of `pfljax run`: the settings of an experiment and its method's own."""

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from pfljax import registry
from pfljax.registry import Choice
from pfljax.runs import config, settings
from pfljax.runs.settings import Experiment

CONFIG = "Another run's config.json instead of options; only --out may stand beside it."


@dataclasses.dataclass(frozen=True)
class Processes:
    """This process among several that run one experiment together."""

    distributed: Annotated[
        bool, tyro.conf.arg(help="The cluster manager says who is who.")
    ] = False
    coordinator: Annotated[
        str | None, tyro.conf.arg(help="HOST:PORT of process 0, where none does.")
    ] = None
    processes: Annotated[int | None, tyro.conf.arg(help="How many there are.")] = None
    process: Annotated[int | None, tyro.conf.arg(help="Which this is, from 0.")] = None


OTHERS = [f"--{field.name}" for field in dataclasses.fields(Processes)]


def values(given: Sequence[Sequence[str]]) -> dict[str, list[Any]]:
    """What --over NAME VALUE VALUE ... says: numbers, True, None, and other texts."""
    over = {}
    for name, *texts in given:
        name = name.replace("-", "_")
        if name in over:
            raise ValueError(f"--over {name} is given twice; give all values at once")
        over[name] = [registry.literal(text) for text in texts]
    return over


def record(args: Sequence[str]) -> type:
    """A dataclass of the options: the settings by group, and those of the method.

    The method's own depend on which one `args` names.

    Raises:
      ValueError: an option or the method is unknown; the message lists the known ones.
    """
    if _value(args, "--config") is not None:
        return _FromFile
    algorithm = _value(args, "--algorithm") or Experiment().method.algorithm
    factory = None
    hyper: dict[str, Any] = {}
    if args:  # else only the commands are listed, and JAX is left alone
        from pfljax import algorithms

        factory = algorithms.method(algorithm)
        hyper = registry.defaults(factory)
    _check_names(args, hyper)
    return _record(algorithm, factory, hyper)


def with_settings(command: Callable, record: type) -> Callable:
    """The command with these options where it says `settings`, without a prefix."""

    kind = Annotated[record, tyro.conf.arg(name="")]
    signature = inspect.signature(command)
    parameters = dict(signature.parameters)
    parameters["settings"] = parameters["settings"].replace(annotation=kind)

    @functools.wraps(command)
    def same(**arguments: Any) -> None:
        command(**arguments)

    # tyro reads the annotations of what is wrapped, wherever there is such a thing.
    del same.__wrapped__
    same.__annotations__ = command.__annotations__ | {"settings": kind}
    same.__dict__["__signature__"] = signature.replace(
        parameters=list(parameters.values())
    )
    return same


def from_file(chosen: Any) -> bool:
    """Whether the options are those beside --config."""
    return isinstance(chosen, _FromFile)


def experiment(chosen: Any) -> Experiment:
    """The experiment of a record's values."""
    if isinstance(chosen, _FromFile):
        return _from_file(chosen)
    hyper: dict[str, Any] = {}
    values: dict[str, Any] = {"seed": chosen.seed}
    for group in dataclasses.fields(chosen):
        if group.name in settings.GROUPS:
            values |= vars(getattr(chosen, group.name))
        elif dataclasses.is_dataclass(group.type):
            hyper = _changed(getattr(chosen, group.name))
    return Experiment(**values, hyper=hyper)


def _changed(options: Any) -> dict[str, Any]:
    """The options of a record that differ from their defaults, by name."""
    changed = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value != field.default:
            changed[field.name] = value
    return changed


def _value(args: Sequence[str], option: str) -> str | None:
    """The last value that stands behind `option`, before anything is parsed."""
    last = None
    for i, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name != option:
            continue
        if equals:
            last = value
        elif i + 1 < len(args):
            last = args[i + 1]
    return last


def _check_names(args: Sequence[str], hyper: dict[str, Any]) -> None:
    """Raises a ValueError that lists the known options if one is unknown."""
    # Before tyro, which knows of an unknown option but not which ones are near to it.
    defaults = {name: field.default for name, field in settings.FIELDS.items()}
    defaults |= hyper
    defaults.pop("hyper", None)
    switches = [f"no_{name}" for name, value in defaults.items() if value is False]
    names = [*defaults, *switches, "config", "help", "over", "no_distributed"]
    known = [f"--{name.replace('_', '-')}" for name in names]
    known += OTHERS
    for arg in args:
        if arg.startswith("--"):
            option = arg.partition("=")[0].replace("_", "-")
            registry.find("option", dict.fromkeys(known), option)


def _record(algorithm: str, factory: Callable | None, hyper: dict[str, Any]) -> type:
    groups = []
    for name, group in settings.GROUPS.items():
        fields = [_setting(field) for field in dataclasses.fields(group)]
        groups.append(_group(name, group.__doc__, fields))
    if hyper:
        about = (factory.__doc__ or algorithm).splitlines()[0]
        options = [_option(name, default) for name, default in hyper.items()]
        # Behind "method", whose options they are.
        groups.insert(1, _group(algorithm, about, options))
    seed = _setting(settings.FIELDS["seed"])
    file = Annotated[str | None, tyro.conf.arg(help=CONFIG)]
    config_file = ("config", file, dataclasses.field(default=None))
    return dataclasses.make_dataclass("Options", [*groups, seed, config_file])


def _group(name: str, about: str | None, fields: list) -> tuple[str, Any, Any]:
    """A field for a group: its options stand below a heading of their own in --help."""
    fields = [field for field in fields if field[0] != "hyper"]
    group = dataclasses.make_dataclass(name, fields, namespace={"__doc__": about})
    return name, group, dataclasses.field(default_factory=group)


def _setting(field: dataclasses.Field) -> tuple[str, Any, Any]:
    kind: Any = field.type
    default: Any = field.default
    if kind is Choice:
        kind = str
        default = str(default)
    elif kind == tuple[Choice, ...]:
        kind = tuple[str, ...]
    kind = Annotated[kind, tyro.conf.arg(help=field.metadata["help"])]
    return field.name, kind, dataclasses.field(default=default)


def _option(name: str, default: Any) -> tuple[str, Any, Any]:
    kind: Any = type(default)
    if default is None:
        kind = int | None
    return name, kind, dataclasses.field(default=default)


@dataclasses.dataclass(frozen=True)
class _FromFile:
    """The options beside --config."""

    config: Annotated[str, tyro.conf.arg(help=CONFIG)]
    out: Annotated[str | None, tyro.conf.arg(help="Run folder, else the file's.")] = (
        None
    )


def _from_file(chosen: _FromFile) -> Experiment:
    """The experiment of a config.json, in another folder if --out says so."""
    try:
        nested = json.loads(Path(chosen.config).read_text())
        written = config.from_dict(nested)
    except (OSError, ValueError) as error:
        raise ValueError(f"--config {chosen.config} cannot be read: {error}") from None
    return written.replace(out=chosen.out) if chosen.out else written
