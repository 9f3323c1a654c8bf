"""`pfljax run FILE`: a file of settings as defaults of the command line.

It is TOML, or the config.json of a run. `--config FILE` is the same.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pfljax.runs import checks, config
from pfljax.runs.settings import Experiment, label
from pfljax.runtime import documents
from pfljax.runtime.files import FileError


def last_value(option: str, args: Sequence[str]) -> str | None:
    """The last value of an option, before anything is parsed."""
    last = None
    for i, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name == option:
            last = value if equals else next(iter(args[i + 1 :]), None)
    return last


def name_first(args: Sequence[str]) -> list[str]:
    """The arguments in which --config names a file that follows the command."""
    command, *rest = args
    if rest and rest[0].endswith((".toml", ".json")):
        return [command, *rest[1:], "--config", rest[0]]
    return [command, *rest]


def read(args: Sequence[str]) -> Experiment | None:
    """The experiment of the file in the arguments; None if they name none.

    It has no label that was made from its method, for another method has another. The
    folder in a config.json is that of one run, and is left out for other commands.

    Raises:
      FileError: the file is missing, or holds no settings.
    """
    text = last_value("--config", args)
    if text is None:
        return None
    path = Path(text)
    if not path.is_file():
        raise FileError(
            f"{path} is no file; give a .toml file of settings, or the config.json of "
            "a run folder"
        )
    try:
        experiment = config.from_dict(_read_settings(path))
        checks.check_values(experiment)
        unlabelled = experiment.replace(label=None)
        is_default = label(unlabelled) == experiment.label
    except (FileError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    if path.suffix != ".toml" and args[0] != "run":
        experiment = experiment.replace(out=None)
    return experiment.replace(label=None) if is_default else experiment


def _read_settings(path: Path) -> dict[str, Any]:
    """The content of the file; in TOML, which has no null, "None" is None."""
    if path.suffix != ".toml":
        return documents.read(path)
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    settings = {
        name: None if value == "None" else value for name, value in values.items()
    }
    return {"format": config.FORMAT} | settings
