"""From the arguments of the program to a command that is called."""

import contextlib
import inspect
import io
from collections.abc import Callable, Sequence

import tyro

from pfljax import __version__, registry
from pfljax.cli import (
    commands,
    comparing,
    mistakes,
    names,
    of_file,
    of_method,
    options,
    predicting,
)

ABOUT = """Simulates personalised federated learning."""
MORE = """`pfljax COMMAND --help` lists the options of a command. `pfljax run
--algorithm ditto --help` also lists those of the method. `pfljax
--tyro-print-completion bash` prints a script for completion (also zsh, fish, tcsh)."""

GROUPS: dict[str, dict[str, Callable]] = {
    "Run": {
        "run": commands.run,
        "resume": commands.resume,
        "sweep": commands.sweep,
        "compare": comparing.compare,
    },
    "Look at runs": {
        "report": commands.report,
        "landscape": commands.landscape,
        "export": commands.export,
        "predict": predicting.predict,
    },
    "Names and data": {
        "list": names.list_,
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
SHELLS: dict[str, None] = {"bash": None, "zsh": None, "fish": None, "tcsh": None}
OF_A_METHOD = ("run", "sweep")  # whose help tells of the method, too
OF_SEVERAL = ("compare",)  # whose options are the settings alone


def run(args: Sequence[str]) -> None:
    """Runs the command of the arguments."""
    if not args or args[0] in ("-h", "--help"):
        print(overview())
        return
    if args[0] == "--version":
        print(f"pfljax {__version__}")
        return
    command = _parse(args)
    command()


def overview() -> str:
    """The commands below their headings: what each does, and how it is typed.

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


def _parse(args: Sequence[str]) -> Callable[[], None]:
    """The command with its arguments, ready to be called.

    Raises:
      ValueError: the arguments are wrong.
    """
    name = args[0]
    if name == COMPLETION:
        registry.find("shell", SHELLS, " ".join(args[1:]))
        from pfljax import algorithms

        known, _ = algorithms.importable()
        record = options.record(methods=tuple(known))
    else:
        registry.find("command", COMMANDS, name)
        args, record = _load_config(args)
    functions = {}
    for key, command in COMMANDS.items():
        functions[key] = options.defer(command, _settings(key, record))
    if name in functions:
        mistakes.check_options(name, functions[name], args[1:])
    boxed = io.StringIO()
    try:
        with contextlib.redirect_stderr(boxed):
            return tyro.extras.subcommand_cli_from_dict(
                functions,
                prog="pfljax",
                description=ABOUT,
                args=args,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as stop:
        if not stop.code:
            # It was asked for help.
            if name in OF_A_METHOD:
                print(of_method.describe(args[1:]))
                print(f"`pfljax {name} --help-all` lists every setting.")
            raise
        said = mistakes.sentence(name, functions[name], args, boxed.getvalue())
        raise ValueError(said) from None


def _load_config(args: Sequence[str]) -> tuple[Sequence[str], type]:
    """The arguments with the method of a --config, and the settings they may change."""
    if args[0] not in OF_A_METHOD:
        return args, options.record()
    of = of_file.experiment(args)
    args = of_file.with_method(args, of)
    if of is not None and args[0] == "sweep":
        of = of.replace(out=None)  # the folder in the file is a run's
    if args[1:]:  # else only the commands are listed, and JAX is left alone
        of_method.parse_method(args[1:])
    flags = {arg.partition("=")[0] for arg in args if arg.startswith("-")}
    names = {flag.strip("-").replace("-", "_") for flag in flags}
    # Beside a rarer option the whole help, which knows it.
    is_short = bool(names & {"h", "help"})
    is_short &= names <= {*options.COMMON, "h", "help", "config"}
    all_of = ["--help" if arg == "--help-all" else arg for arg in args]
    return all_of, options.record(of, only=options.COMMON if is_short else ())


def _settings(name: str, of_a_method: type) -> type | None:
    """The settings that a command takes as options; None of one that takes none."""
    if name in OF_A_METHOD:
        return of_a_method
    return options.record(without=options.OF_ONE) if name in OF_SEVERAL else None
