"""The arguments of the program, parsed into the call of a command."""

import contextlib
import inspect
import io
import re
from collections.abc import Callable, Sequence

import tyro

from pfljax import __version__
from pfljax.cli import commands, compare, config_file, model_commands, options
from pfljax.core import factories, requirements
from pfljax.runs.settings import FIELDS

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
        "prepare": commands.prepare,
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
WITH_METHOD = ("run", "sweep")  # commands that take --algorithm and --config


def run(args: Sequence[str]) -> None:
    """Runs the command of the arguments."""
    if not args or args[0] in ("-h", "--help"):
        print(overview())
    elif args[0] == "--version":
        print(f"pfljax {__version__}")
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
    name = args[0]
    if name == COMPLETION:
        requirements.require_known(COMPLETION, " ".join(args[1:]), SHELLS)
    else:
        requirements.find("command", COMMANDS, name)
    records = _make_records(name, args)
    functions = {
        key: options.defer(command, records.get(key))
        for key, command in COMMANDS.items()
    }
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.extras.subcommand_cli_from_dict(
                functions,
                prog="pfljax",
                description=ABOUT,
                args=["--help" if arg == "--help-all" else arg for arg in args],
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as stop:
        if stop.code:
            raise ValueError(_describe_error(args, box.getvalue())) from None
        if name in WITH_METHOD:
            _print_method(args)
        raise


def _make_records(name: str, args: Sequence[str]) -> dict[str, type]:
    """The settings that each command takes as options, as dataclasses."""
    base = config_file.read(args) if name in WITH_METHOD else None
    if base is not None and name == "sweep":
        base = base.replace(out=None)  # the file names the folder of a run
    is_short = "--help" in args or "-h" in args
    settings = options.record(options.COMMON if is_short else FIELDS, base)
    of_several = [name for name in FIELDS if name not in options.OF_ONE_RUN]
    shared = options.record(of_several, has_file=False)
    return {"run": settings, "sweep": settings, "compare": shared}


def _print_method(args: Sequence[str]) -> None:
    """Prints the method and its options below the help of a command."""
    from pfljax.cli import listing

    print(listing.describe("algorithms", config_file.method(args).name))
    if "--help-all" not in args:
        print(f"\n`pfljax {args[0]} --help-all` lists every setting.")


def _describe_error(args: Sequence[str], box: str) -> str:
    """The message that tyro prints in a box, in one line and with a hint."""
    words: list[str] = []
    for line in box.splitlines()[1:]:
        text = line.strip("│╭╮╰╯─| ")
        # A rule or an empty line ends the message; in ASCII a rule is below the title.
        if words and not text.strip("-"):
            break
        words += text.split()
    message = " ".join(words).strip("-. ")
    nearest = re.search(r"Perhaps you meant:\W+(--[\w-]+)", box)
    if nearest and nearest[1] not in args:
        message += f" (did you mean {nearest[1]}?)"
    return f"{message}{_method_hint(args)}; see `pfljax {args[0]} --help`"


def _method_hint(args: Sequence[str]) -> str:
    """How to write options of the method that are given as options of the command."""
    if args[0] not in WITH_METHOD:
        return ""
    from pfljax import algorithms

    method = config_file.method(args).name
    options = factories.options(algorithms.method(method))
    for arg in args:
        option = arg.partition("=")[0].lstrip("-").replace("-", "_")
        if arg.startswith("--") and option in options:
            return f"; write --algorithm {method}:{option}=VALUE"
    return ""
