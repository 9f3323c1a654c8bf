"""`--config FILE`: the settings of a run as defaults of the command line."""

from collections.abc import Sequence
from pathlib import Path

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


def read(args: Sequence[str]) -> Experiment | None:
    """The experiment of the config.json in the arguments; None if they name none.

    It has no label that was made from its method, for another method has another.

    Raises:
      FileError: the file is missing, or cannot be read.
      ValueError: it holds no settings.
    """
    path = last_value("--config", args)
    if path is None:
        return None
    if not Path(path).is_file():
        raise FileError(
            f"--config {path} is no file; give the config.json of a run folder"
        )
    try:
        experiment = config.from_dict(documents.read(Path(path)))
        checks.check_values(experiment)
        unlabelled = experiment.replace(label=None)
        is_default = label(unlabelled) == experiment.label
    except (FileError, ValueError) as error:
        raise type(error)(f"--config {path} cannot be read: {error}") from None
    return unlabelled if is_default else experiment
