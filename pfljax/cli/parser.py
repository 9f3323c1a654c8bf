"""Reads the command line, and calls the command that it asks for.

`run` answers `pfljax --help` and `pfljax --version` itself. For the rest, `parse` gives
tyro one function for each command. tyro reads the options from its signature and fills
in the arguments; `parse` returns the call. An error of tyro becomes one line.
"""

import contextlib
import functools
import inspect
import io
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import tyro

from pfljax import __version__
from pfljax.cli import commands, compare, config_file, data_commands, model_commands
from pfljax.cli.options import COMMON, make_options
from pfljax.core import components, factories
from pfljax.core.requirements import require_known, unknown
from pfljax.runs.settings import DATA_SETTINGS, FIELDS
from pfljax.runtime.terminal import show

ABOUT = "Simulates personalised federated learning."
MORE = """`pfljax COMMAND --help` lists the options of a command. `pfljax run
--algorithm ditto --help` also lists those of the method. `pfljax
--tyro-print-completion bash` prints a script for completion (also zsh, fish, tcsh)."""

GROUPS: dict[str, dict[str, Callable]] = {
    "Run": {
        "run": commands.run,
        "resume": commands.resume,
        "sweep": commands.sweep,
        "compare": compare.compare,
    },
    "Look at runs": {
        "report": commands.report,
        "landscape": model_commands.landscape,
        "export": model_commands.export,
        "predict": model_commands.predict,
    },
    "Names and data": {
        "list": commands.list_,
        "inspect": data_commands.inspect,
        "prepare": data_commands.prepare,
    },
    "Check": {
        "conformance": commands.conformance,
        "bench": commands.bench,
    },
}
COMMANDS = {
    name: command for group in GROUPS.values() for name, command in group.items()
}
COMPLETION = "--tyro-print-completion"
SHELLS = ("bash", "zsh", "tcsh", "fish")
OPTIONS = ("--help", "--version", COMPLETION)  # in place of a command
WITH_METHOD = ("run", "sweep")  # commands with --algorithm
WITH_SETTINGS = (*WITH_METHOD, "compare")
FIRST = {  # what has no name, and stands before the options
    "run": "a file of settings comes first: pfljax run FILE.toml --rounds 9",
    "sweep": "a file of settings comes first: pfljax sweep FILE.toml --over lr 0.1 1",
    "compare": "methods come first: pfljax compare A B --no-local",
}
OF_ONE_RUN = ("algorithm", "label")  # settings that a comparison sets for each run


def run(args: Sequence[str]) -> None:
    """Runs the command of the arguments."""
    if not args or args[0] in ("-h", "--help"):
        show(overview())
    elif args[0] == "--version":
        show(f"pfljax {__version__}")
    else:
        parse(args)()


def overview() -> str:
    """The commands below their headings, each with a description and an example.

    tyro would list them in one box, without headings.
    """
    lines = ["usage: pfljax COMMAND ...", "", ABOUT]
    for heading, group in GROUPS.items():
        lines += ["", f"{heading}:"]
        for name, command in group.items():
            about, *_, example = (inspect.getdoc(command) or "").splitlines()
            lines.append(f"  {name:12} {about}")
            lines.append(f"  {'':12}   {example.removeprefix('Example: ')}")
    return "\n".join([*lines, "", MORE])


def parse(args: Sequence[str]) -> Callable[[], None]:
    """The command with its arguments, ready to be called.

    Raises:
      ValueError: the arguments are wrong.
    """
    _check_first(args)
    if args[0] in WITH_SETTINGS:
        args = config_file.name_first(args)
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.extras.subcommand_cli_from_dict(
                _make_functions(args),
                prog="pfljax",
                description=ABOUT,
                args=["--help" if arg == "--help-all" else arg for arg in args],
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as stop:
        if stop.code:
            raise ValueError(_describe_error(args, box.getvalue())) from None
        if args[0] in WITH_SETTINGS:
            show(_end_help(args))
        raise


def _check_first(args: Sequence[str]) -> None:
    """Raises a ValueError unless the first argument is a command or an option."""
    first = args[0]
    if first == COMPLETION:
        require_known(COMPLETION, " ".join(args[1:]), SHELLS)
    elif first.startswith("-"):
        raise ValueError(unknown("option", dict.fromkeys(OPTIONS), first))
    elif first not in COMMANDS:
        raise ValueError(unknown("command", COMMANDS, first))


def _make_functions(args: Sequence[str]) -> dict[str, Callable]:
    """The function of each command that tyro reads."""
    base = config_file.read(args) if args[0] in WITH_SETTINGS else None
    is_short = "--help" in args or "-h" in args
    names = COMMON if is_short else FIELDS
    of_a_run = make_options(names, base)
    shared = [name for name in names if name not in OF_ONE_RUN]
    of_several = make_options(shared, base)
    of_data = make_options({*DATA_SETTINGS, "seed"} - {"dataset"}, has_file=False)
    settings = {"run": of_a_run, "sweep": of_a_run, "compare": of_several}
    settings["inspect"] = of_data
    return {
        name: _defer(command, settings.get(name)) for name, command in COMMANDS.items()
    }


def _defer(command: Callable, settings: type | None) -> Callable:
    """A function with the signature of a command that returns the call of it.

    tyro calls it while it parses, and an error of the command is no error of its
    options. A parameter `settings` of the command becomes the options of `settings`.
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


def _end_help(args: Sequence[str]) -> str:
    """The lines below the settings: the method that was typed, or where to read."""
    from pfljax.cli import listing

    method = _typed_method(args)
    if method is None:
        lines = ["`pfljax list algorithms NAME` lists the options of a method."]
    else:
        lines = [listing.describe("algorithms", method), ""]
    if "--help-all" not in args:
        lines.append(f"`pfljax {args[0]} --help-all` lists every setting.")
    return "\n".join(lines)


def _describe_error(args: Sequence[str], box: str) -> str:
    """The message that tyro prints in a box, in one line and with a hint."""
    words: list[str] = []
    for line in box.splitlines()[1:]:
        text = line.strip("│╭╮╰╯─| ")
        # A rule or an empty line ends the message; in ASCII a rule is below the title.
        if words and not text.strip("-"):
            break
        words += text.split()
    message = _describe_value(" ".join(words).strip("-. "), box)
    if args[0] in FIRST and re.match("Unrecognized options: [^-]", message):
        message += f"; {FIRST[args[0]]}"
    nearest = re.search(r"Perhaps you meant:\W+(--[\w-]+)", box)
    if nearest and nearest[1] not in args:
        message += f" (did you mean {nearest[1]}?)"
    return f"{message}{_method_hint(args)}; see `pfljax {args[0]} --help`"


def _describe_value(message: str, box: str) -> str:
    """The message, in pfljax's words if a value is missing or of the wrong type."""
    missing = re.match(r"Missing value for argument '(--[\w-]+)'", message)
    if missing:
        return f"{missing[1]} has no value; give {missing[1]} VALUE"
    refused = re.match(r"Error parsing (--[\w-]+): .*?(\[.*\]|'.*')$", message)
    if refused is None:
        return message
    name, value = refused.groups()
    usage = re.search(rf"{name} (.*(?:INT|FLOAT).*)", box)
    if usage is None:
        return message
    expected = "a whole number" if "INT" in usage[1] else "a number"
    if "None" in usage[1]:
        expected += " or None"
    return f"{name} is {value.strip('[]')}; expected {expected}"


def _method_hint(args: Sequence[str]) -> str:
    """How to write options of the method that are given as options of the command."""
    method = _typed_method(args)
    if method is None:
        return ""
    from pfljax import algorithms

    known = factories.options(algorithms.method(method))
    for arg in args:
        option = arg.partition("=")[0].lstrip("-").replace("-", "_")
        if arg.startswith("--") and option in known:
            return f"; write --algorithm {method}:{option}=VALUE"
    return ""


def _typed_method(args: Sequence[str]) -> str | None:
    """The name of the method in the arguments of `run` or `sweep`."""
    text = config_file.last_value("--algorithm", args)
    if text is None or args[0] not in WITH_METHOD:
        return None
    return components.parse(text).name
