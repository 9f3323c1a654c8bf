"""From the options of a command to the experiment that they say."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import tyro

from pfljax import registry
from pfljax.cli import of_method, records
from pfljax.cli.of_method import value_of as value_of
from pfljax.runs import settings
from pfljax.runs.settings import Experiment

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
        if not texts:
            raise ValueError(
                f"--over {name} has no value; give what it is to be, such as "
                f"--over {name} VALUE VALUE"
            )
        if name in over:
            raise ValueError(f"--over {name} is given twice; give all values at once")
        over[name] = [registry.literal(text) for text in texts]
    return over


def record(args: Sequence[str], of: Experiment | None = None) -> type:
    """A dataclass of the settings by group, with those `of` a --config as defaults.

    Raises:
      ValueError: the method is unknown; the message lists the known ones.
    """
    if args:  # else only the commands are listed, and JAX is left alone
        of_method.chosen(args)
    return records.of_settings(of=of)


def record_of_several() -> type:
    """The settings that the methods of a comparison share."""
    return records.of_settings(without=OF_ONE)


def record_of_all_methods() -> type:
    """The record that completion knows, with the names of methods.

    A shell completes by a script that was printed once.
    """
    from pfljax import algorithms

    known, _ = algorithms.importable()
    return records.of_settings(names=tuple(known))


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


def experiment(chosen: Any) -> Experiment:
    """The experiment of a record's values."""
    values: dict[str, Any] = {"seed": chosen.seed}
    for group in settings.GROUPS:
        values |= vars(getattr(chosen, group))
    return Experiment(**values)


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
    for text in methods:
        if " " in text.strip() or ("," in text and ":" not in text):
            raise ValueError(
                f"{text!r} is no method; expected names with spaces between them, "
                "without quotes: pfljax compare fedper ditto:lam=0.5"
            )
    shared = experiment(chosen)
    choices = [registry.parse(text) for text in methods]
    for text, choice in zip(methods, choices, strict=True):
        if choices.count(choice) > 1:
            raise ValueError(
                f"{text} is given twice; give it once, or with other options"
            )
    return [shared.replace(algorithm=choice) for choice in choices]
