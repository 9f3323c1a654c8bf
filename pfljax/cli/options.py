"""From the options of a command to the experiment that they say."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from pfljax import registry
from pfljax.cli import records
from pfljax.cli.records import FromFile
from pfljax.registry import annotations
from pfljax.runs import checks, config, settings
from pfljax.runs.settings import Experiment
from pfljax.runtime import documents
from pfljax.runtime.files import FileError

# What a comparison gives to each of its runs.
OF_ONE = ("algorithm", "label", "baseline")


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


def values(given: Sequence[Sequence[str]]) -> dict[str, list[Any]]:
    """What --over NAME VALUE VALUE ... says: numbers, True, None, and other texts."""
    over = {}
    for words in given:
        if not words:
            raise ValueError("--over names nothing; give --over NAME VALUE VALUE, say")
        name, *texts = words
        name = name.replace("-", "_")
        if name in over:
            raise ValueError(f"--over {name} is given twice; give all values at once")
        over[name] = [registry.literal(text) for text in texts]
    return over


def record(args: Sequence[str]) -> type:
    """A dataclass of the options: the settings by group, and those of the method.

    The method's own depend on which one `args` names.

    Raises:
      ValueError: the method is unknown; the message lists the known ones.
    """
    if value_of("--config", args) is not None:
        return FromFile
    algorithm = value_of("--algorithm", args) or Experiment().method.algorithm
    if not args:  # only the commands are listed, and JAX is left alone
        return records.of_settings(algorithm, None, {})
    from pfljax import algorithms

    factory = algorithms.method(algorithm)
    checks.check_option_names(algorithm, factory)
    method_options = registry.options(factory)
    return records.of_settings(algorithm, factory, method_options)


def record_of_several() -> type:
    """The settings that the methods of a comparison share."""
    return records.of_settings("methods", None, {}, without=OF_ONE)


def record_of_all_methods() -> type:
    """The record that completion knows: names of methods, and the options of them all.

    A shell completes by a script that was printed once, and cannot ask for a method's.
    """
    from pfljax import algorithms

    known, _ = algorithms.importable()
    method_options: dict[str, inspect.Parameter] = {}
    for factory in known.values():
        method_options |= registry.options(factory)
    for name, option in method_options.items():
        # What one method needs is no option of another: none has to be given.
        kind = annotations.written(option) | None
        method_options[name] = option.replace(default=None, annotation=kind)
    return records.of_settings("methods", None, method_options, names=tuple(known))


def value_of(option: str, args: Sequence[str]) -> str | None:
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


def kept(command: Callable, record: type | None = None) -> Callable:
    """What tyro is to call for a command: it keeps the arguments, and runs nothing.

    What the command raises is then no error of the command line's. Its parameters are
    the command's; `settings` among them has the options of `record`, without a prefix.
    """
    parameters = dict(inspect.signature(command).parameters)
    if record is not None:
        options = Annotated[record, tyro.conf.arg(name="")]
        parameters["settings"] = parameters["settings"].replace(annotation=options)

    def keep(*values: Any, **arguments: Any) -> Callable[[], None]:
        return functools.partial(command, *values, **arguments)

    # tyro reads a function by these three. `functools.wraps` would lead it past them,
    # to the command itself.
    keep.__doc__ = command.__doc__
    keep.__annotations__ = {name: p.annotation for name, p in parameters.items()}
    keep.__dict__["__signature__"] = inspect.Signature(list(parameters.values()))
    return keep


def from_file(chosen: Any) -> bool:
    """Whether the options are those beside --config."""
    return isinstance(chosen, FromFile)


def experiment(chosen: Any) -> Experiment:
    """The experiment of a record's values."""
    if isinstance(chosen, FromFile):
        return _from_file(chosen)
    hyper: dict[str, Any] = {}
    values: dict[str, Any] = {"seed": chosen.seed}
    for group in dataclasses.fields(chosen):
        if group.name in settings.GROUPS:
            values |= vars(getattr(chosen, group.name))
        elif dataclasses.is_dataclass(group.type):
            hyper = _changed(getattr(chosen, group.name))
    return Experiment(**values, hyper=hyper)


def of_methods(methods: Sequence[str], chosen: Any) -> list[Experiment]:
    """An experiment a method, "name" or "name:option=value", with the same settings.

    Raises:
      ValueError: there is no method, or one is there twice.
    """
    if not methods:
        raise ValueError(
            "no method is given; expected pfljax compare NAME ..., such as fedper or "
            "ditto:lam=0.5"
        )
    shared = experiment(chosen)
    choices = [registry.parse(text) for text in methods]
    for text, choice in zip(methods, choices, strict=True):
        if choices.count(choice) > 1:
            raise ValueError(
                f"{text} is given twice; give it once, or with other options"
            )
    return [
        shared.replace(algorithm=choice.name, hyper=choice.kwargs) for choice in choices
    ]


def _changed(options: Any) -> dict[str, Any]:
    """The options of a record that differ from their defaults, by name."""
    changed = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value != field.default:
            changed[field.name] = value
    return changed


def _from_file(chosen: FromFile) -> Experiment:
    """The experiment of a config.json, in another folder if --out says so."""
    file = Path(chosen.config)
    if not file.is_file():
        what = "no file" if file.exists() else "missing"
        raise FileError(
            f"--config {file} is {what}; give the config.json of a run folder"
        )
    try:
        nested = documents.read(file, edited=True)
    except FileError as error:
        raise FileError(f"--config {error}") from None
    try:
        written = config.from_dict(nested)
    except ValueError as error:
        raise ValueError(f"--config {chosen.config} cannot be read: {error}") from None
    return written.replace(out=chosen.out) if chosen.out else written
