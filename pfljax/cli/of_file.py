"""`--config FILE`: the settings of a run, which other options go before."""

from collections.abc import Sequence
from pathlib import Path

from pfljax.cli.of_method import last_value
from pfljax.runs import checks, config
from pfljax.runs.settings import Experiment, label
from pfljax.runtime import documents
from pfljax.runtime.files import FileError


def experiment(args: Sequence[str]) -> Experiment | None:
    """The experiment of the config.json that the arguments name; None: they name none.

    It is as its user wrote it, so that another method has a label of its own.

    Raises:
      FileError: the file is not there, or cannot be read.
      ValueError: it holds no settings.
    """
    named = last_value("--config", args)
    if named is None:
        return None
    file = Path(named)
    if not file.is_file():
        what = "no file" if file.exists() else "missing"
        raise FileError(
            f"--config {file} is {what}; give the config.json of a run folder"
        )
    try:
        nested = documents.read(file)
    except FileError as error:
        raise FileError(f"--config {error}") from None
    try:
        written = config.from_dict(nested)
        checks.check_values(written)
        return _as_written(written)
    except ValueError as error:
        raise ValueError(f"--config {named} cannot be read: {error}") from None


def with_method(args: Sequence[str], of: Experiment | None) -> list[str]:
    """The arguments, which name the method of the file where they name none."""
    if of is None or last_value("--algorithm", args) is not None:
        return list(args)
    return [*args, f"--algorithm={of.algorithm}"]


def _as_written(resolved: Experiment) -> Experiment:
    """The experiment without the label that a run makes of its method."""
    unlabelled = resolved.replace(label=None)
    return unlabelled if label(unlabelled) == resolved.label else resolved
