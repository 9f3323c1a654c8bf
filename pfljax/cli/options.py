"""The options of commands: tyro makes them from dataclasses of the settings."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Union

import tyro

from pfljax.core import annotations, components
from pfljax.runs.config import to_json
from pfljax.runs.settings import FIELDS, HELP, Experiment

# The settings that `run --help` lists.
COMMON = (
    *("algorithm", "model", "dataset", "partition", "clients", "test", "validation"),
    *("epochs", "batch_size", "lr", "momentum", "weight_decay", "optimizer", "rounds"),
    *("cohort", "selection", "eval_every", "devices", "out", "seed"),
)
OF_ONE_RUN = ("algorithm", "label")  # a comparison sets them for each run
CONFIG = (
    "The config.json of a run, whose settings replace the defaults. Other options take "
    "precedence: `--config FILE --rounds 200 --out FOLDER`. `run` also takes the "
    "folder from the file, unless --out names another."
)

RunFolder = Annotated[Path, tyro.conf.arg(help="The folder of a run.")]


@dataclasses.dataclass(frozen=True)
class Processes:
    """For an experiment that several processes run together."""

    distributed: Annotated[
        bool,
        tyro.conf.arg(help="Ask the cluster manager, such as Slurm, for the others."),
    ] = False
    coordinator: Annotated[
        str | None, tyro.conf.arg(help="HOST:PORT of process 0, without a manager.")
    ] = None
    processes: Annotated[int | None, tyro.conf.arg(help="The number of processes.")] = (
        None
    )
    process: Annotated[
        int | None, tyro.conf.arg(help="The number of this process, from 0.")
    ] = None


def values(over: Sequence[Sequence[str]]) -> dict[str, list[Any]]:
    """The values of --over NAME VALUE VALUE ..., by name."""
    by_name = {}
    for name, *texts in filter(None, over):
        name = name.replace("-", "_")
        if not texts:
            raise ValueError(f"--over {name} has no value; give --over {name} VALUE")
        if name in by_name:
            raise ValueError(f"--over {name} is given twice; give all values at once")
        by_name[name] = [components.literal(text) for text in texts]
    if not by_name:
        raise ValueError("--over is missing; give --over NAME VALUE VALUE")
    return by_name


def record(
    names: Collection[str], base: Experiment | None = None, has_file: bool = True
) -> type:
    """A dataclass of the settings of these names, in a group for each heading.

    Args:
      names: the settings to include.
      base: the experiment with the defaults; None for the usual ones.
      has_file: whether --config is an option, too.
    """
    defaults = to_json(base or Experiment())
    groups = []
    for heading, texts in HELP.items():
        fields = [
            _make_field(name, text, defaults[name])
            for name, text in texts.items()
            if name in names
        ]
        group = dataclasses.make_dataclass(heading, fields, namespace={"__doc__": ""})
        groups.append((heading, group, dataclasses.field(default_factory=group)))
    if has_file:
        file = Annotated[str | None, tyro.conf.arg(help=CONFIG)]
        groups.append(("config", file, dataclasses.field(default=None)))
    return dataclasses.make_dataclass("Options", groups)


def _make_field(name: str, text: str, default: Any) -> tuple[str, Any, Any]:
    """A setting as a field whose annotation tyro reads; components are texts."""
    # Without ranges, which tyro does not look for in a union.
    kind: Any = Union[annotations.alternatives(FIELDS[name].type)]  # noqa: UP007
    if isinstance(default, list):
        kind, default = tuple[str, ...], tuple(default)
    elif "converter" in FIELDS[name].metadata:
        kind = str
    annotation = Annotated[kind, tyro.conf.arg(help=text)]
    return name, annotation, dataclasses.field(default=default)


def experiment(settings: Any) -> Experiment:
    """The experiment of a dataclass that `record` made."""
    values: dict[str, Any] = {}
    for heading in HELP:
        values |= vars(getattr(settings, heading))
    return Experiment(**values)


def experiments(methods: Sequence[str], settings: Any) -> list[Experiment]:
    """One experiment for each method, all with the same settings.

    Raises:
      ValueError: no method is given, or one is given twice.
    """
    if not methods:
        raise ValueError(
            "no method is given; expected pfljax compare NAME ..., such as fedper or "
            "ditto:lam=0.5"
        )
    choices = [components.parse(text) for text in methods]
    for choice in choices:
        if choices.count(choice) > 1:
            raise ValueError(f"{choice} is given twice; give it once")
    shared = experiment(settings)
    return [shared.replace(algorithm=choice) for choice in choices]


def defer(command: Callable, settings: type | None = None) -> Callable:
    """A function for tyro that returns the call of a command instead of making it.

    An error of the command is then no error of its options. A parameter `settings` of
    the command gets the options of the dataclass `settings`.
    """
    parameters = dict(inspect.signature(command).parameters)
    if settings is not None:
        annotation = Annotated[settings, tyro.conf.arg(name="")]
        parameters["settings"] = parameters["settings"].replace(annotation=annotation)

    def call(*values: Any, **arguments: Any) -> Callable[[], None]:
        return functools.partial(command, *values, **arguments)

    # tyro reads these three. After `functools.wraps` it would read the command itself.
    call.__doc__ = command.__doc__
    call.__annotations__ = {name: p.annotation for name, p in parameters.items()}
    call.__dict__["__signature__"] = inspect.Signature(list(parameters.values()))
    return call
