"""The options of commands: a dataclass of the settings, of which tyro makes options."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Union

import tyro

from pfljax import registry
from pfljax.cli.of_method import last_value as last_value
from pfljax.registry import annotations
from pfljax.runs.config import to_json
from pfljax.runs.settings import FIELDS, HELP, Experiment

# What a comparison gives to each of its runs.
COMMON = (
    *("algorithm", "model", "dataset", "partition", "clients", "test", "validation"),
    *("epochs", "batch_size", "lr", "momentum", "weight_decay", "optimizer", "rounds"),
    *("cohort", "selection", "eval_every", "devices", "out", "seed"),
)  # settings that most runs set
OF_ONE = ("algorithm", "label", "baseline")
CONFIG = (
    "A run's config.json, whose settings are the defaults here. Options beside it go "
    "before the file: `--config FILE --rounds 200 --out FOLDER`. The folder is the "
    "file's too, unless --out names another; a sweep's is not."
)


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
    for name, *texts in filter(None, given):
        name = name.replace("-", "_")
        if not texts:
            raise ValueError(f"--over {name} has no value; give --over {name} VALUE")
        if name in over:
            raise ValueError(f"--over {name} is given twice; give all values at once")
        over[name] = [registry.literal(text) for text in texts]
    if not over:
        raise ValueError("--over is missing; give --over NAME VALUE VALUE")
    return over


def record(
    of: Experiment | None = None,
    without: Sequence[str] = (),
    methods: Sequence[str] = (),
    only: Sequence[str] = (),
) -> type:
    """The settings as a dataclass, a field with those of each heading.

    The defaults are the settings `of` an experiment. Of the `methods`, if any,
    `--algorithm` takes one alone. Settings `without` are no options, nor is --config.
    With `only`, help lists these alone.
    """
    defaults = to_json(of or Experiment())
    groups = []
    for heading, texts in HELP.items():
        fields = []
        for name, text in texts.items():
            if name in without or (only and name not in only):
                continue
            default = defaults[name]
            kind: Any = Union[annotations.alternatives(FIELDS[name].type)]  # noqa: UP007
            if "converter" in FIELDS[name].metadata:
                is_list = isinstance(default, list)
                default = tuple(default) if is_list else default
                kind = tuple[str, ...] if is_list else str
            if name == "algorithm" and methods:
                kind = Literal[tuple(methods)]
            annotation = Annotated[kind, tyro.conf.arg(help=text)]
            fields.append((name, annotation, dataclasses.field(default=default)))
        group = dataclasses.make_dataclass(
            heading.lower(), fields, namespace={"__doc__": ""}
        )
        groups.append((heading, group, dataclasses.field(default_factory=group)))
    if not without:
        file = Annotated[str | None, tyro.conf.arg(help=CONFIG)]
        groups.append(("config", file, dataclasses.field(default=None)))
    return dataclasses.make_dataclass("Options", groups)


def experiment(options: Any) -> Experiment:
    """The experiment of a record's values."""
    values: dict[str, Any] = {}
    for heading in HELP:
        values |= vars(getattr(options, heading))
    return Experiment(**values)


def defer(command: Callable, record: type | None = None) -> Callable:
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


def experiments(methods: Sequence[str], chosen: Any) -> list[Experiment]:
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
    for choice in choices:
        if choices.count(choice) > 1:
            raise ValueError(f"{choice} is given twice; give it once")
    return [shared.replace(algorithm=choice) for choice in choices]
