"""What is wrong with the options of a command, in one line."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tyro.conf import Positional

from pfljax import registry
from pfljax.cli import of_method
from pfljax.cli.of_method import last_value
from pfljax.registry import annotations

# Of tyro's messages. A rule, of ASCII where stderr has no more, lies between what is
# wrong and what tyro advises.
FRAME = "│╭╮╰╯ "
RULES = ("─", "---")
EXTRA = re.compile(r"Unrecognized .*?options: (.*)")
WRONG = re.compile(r"Error parsing (--[\w-]+):")
NO_VALUE = re.compile(r"Missing value for argument '(--[\w-]+)'")
CHOICE = re.compile(r"invalid choice '(.*)' for argument '(.*)'\. .*?\((.*)\)")
MISSING = re.compile(r"Missing from [^:]*: (\S+) (.*) \(required\)")


def check_options(name: str, command: Callable, args: Sequence[str]) -> None:
    """Raises a ValueError for an option that the command lacks, with the nearest.

    And for a switch that is given a value. Before tyro, which knows neither the nearest
    nor whose value it was.
    """
    known = option_types(command)
    for arg in args:
        typed, equals, value = arg.partition("=")
        option = typed.replace("_", "-")
        if not arg.startswith("--"):
            continue
        if equals and known.get(option) is bool:
            raise ValueError(
                f"{option} is {value!r}, but it is a switch, which takes no value; "
                f"expected {option} alone; see {_help(name, args)}"
            )
        if option in known:
            continue
        if "--algorithm" in known and (respelled := of_method.correct_spelling(args)):
            raise ValueError(respelled)
        nearest = registry.near(option.strip("-"), [key.strip("-") for key in known])
        hint = f" (did you mean --{nearest[0]}?)" if nearest else ""
        raise ValueError(
            f"`pfljax {name}` has no option {option}{hint}; see {_help(name, args)}"
        )


def option_types(command: Callable) -> dict[str, Any]:
    """The type of every option of a command, by its name as it is typed."""
    options: dict[str, Any] = {"--help": bool}
    for parameter in inspect.signature(command).parameters.values():
        options |= dict(_options(parameter.name, parameter.annotation))
    return options


def _options(name: str, annotation: Any) -> Iterator[tuple[str, Any]]:
    """(option, type) of a parameter, or of each field where it is a dataclass."""
    notes = getattr(annotation, "__metadata__", ())
    kind = annotation.__origin__ if notes else annotation
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            yield from _options(field.name, field.type)
        return
    if Positional in notes:
        return
    typed = name.replace("_", "-")
    yield f"--{typed}", kind
    if kind is bool:
        yield f"--no-{typed}", kind


def sentence(name: str, command: Callable, args: Sequence[str], boxed: str) -> str:
    """What tyro says is wrong, in a box of several lines, as a line of ours."""
    said = _first_paragraph(boxed).rstrip(".")
    if extra := EXTRA.match(said):
        said = f"`pfljax {name}` takes no {extra[1]}"
        if "--algorithm" in option_types(command):
            said += f"; if it is a method: --algorithm {extra[1].split()[0]}"
    elif valueless := NO_VALUE.match(said):
        said = f"{valueless[1]} has no value; give one behind it"
    elif missing := MISSING.match(said):
        said = f"`pfljax {name}` needs {missing[1]} ({missing[2].rstrip('.')})"
    elif choice := CHOICE.match(said):
        value, argument, listed = choice.groups()
        names = dict.fromkeys(listed.replace("'", "").split(", "))
        said = registry.unknown(argument, names, value)
    elif wrong := WRONG.match(said):
        option = wrong[1]
        expected = annotations.describe(option_types(command)[option])
        said = f"{option} is {last_value(option, args)!r}; expected {expected}"
    return f"{said}; see {_help(name, args)}"


def _help(name: str, args: Sequence[str]) -> str:
    """The command that lists the options; those of the method too, if one is named."""
    method = last_value("--algorithm", args)
    # `pfljax compare` has methods, and no option for one.
    named = f"--algorithm {method} " if method and name != "compare" else ""
    return f"`pfljax {name} {named}--help`"


def _first_paragraph(boxed: str) -> str:
    """The text below the title of tyro's frame, up to the first rule, as one line."""
    words = []
    for line in boxed.splitlines()[1:]:
        text = line.strip(FRAME)
        is_rule = text.startswith(RULES)
        # In ASCII a rule lies below the title, too.
        if is_rule and words:
            break
        if not is_rule:
            words += text.split()
    return " ".join(words)
