"""The method that arguments name, its options, and how they are written.

They stand behind its name: `--algorithm ditto:lam=1.0,personal_epochs=2`.
"""

import inspect
import shlex
import sys
import textwrap
from collections.abc import Callable, Container, Iterator, Sequence

from pfljax import registry
from pfljax.registry import Component, annotations, docstrings
from pfljax.runs import checks
from pfljax.runs.settings import Experiment

INDENT = " " * 6


def last_value(option: str, args: Sequence[str]) -> str | None:
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


def parse_method(args: Sequence[str]) -> tuple[Component, Callable]:
    """The method as it is named, or the default, and its factory.

    Raises:
      ValueError: the method is unknown; the message lists the known ones.
    """
    from pfljax import algorithms

    text = last_value("--algorithm", args) or str(Experiment().algorithm)
    try:
        choice = registry.parse(text)
    except ValueError as error:
        raise ValueError(f"--algorithm: {error}") from None
    factory = algorithms.method(choice.name)
    checks.check_option_names(choice.name, factory)
    return choice, factory


def correct_spelling(args: Sequence[str]) -> str | None:
    """What is wrong with options of the method by themselves; None if there are none.

    With the very values, as they are to be written.
    """
    choice, factory = parse_method(args)
    known = registry.options(factory)
    apart = {
        name: value for name, value in _method_options(args, known) if name in known
    }
    if not apart:
        return None
    flags = ", ".join(f"--{name.replace('_', '-')}" for name in apart)
    values = {name: registry.literal(value) for name, value in apart.items()}
    whole = str(registry.Component(choice.name, choice.options | values))
    return (
        f"a method's options stand behind its name, not by themselves as {flags}; "
        f"write --algorithm {shlex.quote(whole)}"
    )


def _method_options(
    args: Sequence[str], own: Container[str]
) -> Iterator[tuple[str, str]]:
    """(name, value) of each option that may be a method's, as it is typed."""
    for i, arg in enumerate(args):
        typed, equals, value = arg.partition("=")
        if not typed.startswith("--"):
            continue
        name = typed[2:].replace("-", "_")
        follows = args[i + 1] if i + 1 < len(args) else "--"
        if name.startswith("no_") and name not in own:
            yield name.removeprefix("no_"), "False"
        elif equals:
            yield name, value
        else:
            yield name, "True" if follows.startswith("--") else follows


def describe(args: Sequence[str]) -> str:
    """What the method is, and how each option is written, its line and its default."""
    choice, factory = parse_method(args)
    file = sys.modules[factory.__module__]
    about = [docstrings.paragraph(file.__doc__), docstrings.paragraph(factory.__doc__)]
    known = registry.options(factory)
    lines = [f"{choice.name} options", *_wrap(" ".join(filter(None, about)), "  ")]
    if not known:
        return "\n".join([*lines, "  It has none."])
    lines.append(
        f"  They stand behind its name: --algorithm {choice.name}:{_example(known)}"
    )
    of_option = docstrings.options_told(factory)
    for name, option in known.items():
        lines.append(f"  {name}={_kind(option)}")
        line = of_option.get(name, "")
        sentence = f"{line[:1].upper()}{line[1:]} ({_default(option)})"
        lines += _wrap(sentence.strip(), INDENT)
    return "\n".join(lines)


def _default(option: inspect.Parameter) -> str:
    is_needed = option.default is option.empty
    return "required" if is_needed else f"default: {option.default}"


def _example(own: dict[str, inspect.Parameter]) -> str:
    """The first option or two as they may be written."""
    pairs = []
    for name, option in [*own.items()][:2]:
        has_default = option.default is not option.empty
        pairs.append(f"{name}={option.default if has_default else _kind(option)}")
    return ",".join(pairs)


def _kind(option: inspect.Parameter) -> str:
    """The type of an option's value, in capitals as in tyro's help."""
    names = annotations.names(annotations.written_type(option))
    return "|".join(name if name[0] in "'N" else name.upper() for name in names)


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, 88, initial_indent=indent, subsequent_indent=indent)
