"""The entry point of the command line."""

import contextlib
import functools
import inspect
import io
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro

from pfljax.cli import commands, options
from pfljax.runtime import errors

ABOUT = """Personalised federated learning, simulated.

`pfljax COMMAND --help` lists the options of a command, and `pfljax run --algorithm
ditto --help` those of the method as well. `pfljax --tyro-print-completion bash` prints
what a shell completes them by (also zsh, fish and tcsh)."""

COMMANDS: dict[str, Callable] = {
    "run": commands.run,
    "resume": commands.resume,
    "sweep": commands.sweep,
    "report": commands.report,
    "export": commands.export,
    "landscape": commands.landscape,
    "list": commands.list_,
    "prepare": commands.prepare,
    "bench": commands.bench,
    "conformance": commands.conformance,
}
OF_A_METHOD = ("run", "sweep")  # whose options depend on the method


def main() -> None:
    """Runs the command of the arguments; a user's error is a line and exit code 2."""
    args = sys.argv[1:] or ["--help"]
    with errors.in_one_line("pfljax"):
        command = _parsed(args)
        command()


def _parsed(args: Sequence[str]) -> Callable[[], None]:
    """The command with its arguments, ready to be called.

    Raises:
      ValueError: the arguments are wrong.
    """
    name = args[0]
    if not name.startswith("-") and name not in COMMANDS:
        known = ", ".join(COMMANDS)
        raise ValueError(f"command {name!r} is unknown; known: {known}")
    bound = {}
    for key, function in COMMANDS.items():
        if key in OF_A_METHOD:
            record = options.record(args[1:] if key == name else ())
            function = options.with_settings(function, record)
        bound[key] = _bound(function)
    boxed = io.StringIO()
    try:
        with contextlib.redirect_stderr(boxed):
            return tyro.extras.subcommand_cli_from_dict(
                bound,
                prog="pfljax",
                description=ABOUT,
                args=args,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as stop:
        if stop.code:
            raise ValueError(_first_paragraph(boxed.getvalue())) from None
        raise


def _bound(function: Callable) -> Callable:
    """The function as one that only keeps its arguments.

    What the command raises is then no error of the command line's to tyro.
    """

    @functools.wraps(function)
    def bind(*values: Any, **arguments: Any) -> Callable[[], None]:
        return functools.partial(function, *values, **arguments)

    del bind.__wrapped__
    bind.__dict__["__signature__"] = inspect.signature(function)
    return bind


def _first_paragraph(boxed: str) -> str:
    """What tyro says in the frame of its message, up to the first rule, as one line."""
    words = []
    for line in boxed.splitlines()[1:]:
        text = line.strip("│╭╮╰╯ ")
        if text.startswith("─"):
            break
        words += text.split()
    return " ".join(words)
