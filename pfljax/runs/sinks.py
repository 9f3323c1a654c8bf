"""Other formats of a run's log: CSV, TensorBoard, Weights & Biases.

Whenever a run starts or resumes, each sink is opened anew with the rounds up to the
checkpoint. It then holds every round once, whatever a kill has left in it.
"""

import importlib
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pfljax.core import factories, requirements
from pfljax.core.components import Component
from pfljax.runs import config
from pfljax.runs.log import NEWEST, Line
from pfljax.runs.settings import Experiment
from pfljax.runtime import files
from pfljax.runtime.csv_text import format_csv

Row = dict[str, float]  # numbers of a round by name, "round" among them


class Sink(NamedTuple):
    """A format of the log, open for the rounds of a run."""

    write: Callable[[Sequence[Row]], None]
    close: Callable[[], None]


Open = Callable[[Path, Experiment, bool], Sink]
OPENED_BY = "folder", "experiment", "quiet"  # (run folder, settings, whether to print)


def csv() -> Open:
    """metrics.csv, with one row for each round and one column for each number."""

    def begin(folder: Path, experiment: Experiment, quiet: bool) -> Sink:
        columns: list[str] = []
        rows: list[Row] = []

        def write(new: Sequence[Row]) -> None:
            is_wider = not rows
            rows.extend(new)
            for name in dict.fromkeys(name for row in new for name in row):
                if name not in columns:
                    columns.append(name)
                    is_wider = True
            mode = "w" if is_wider else "a"
            kept = rows if is_wider else new
            lines = [[row.get(name) for name in columns] for row in kept]
            with open(folder / "metrics.csv", mode, encoding="utf-8") as file:
                file.write(format_csv([columns, *lines] if is_wider else lines))

        return Sink(write, close=lambda: None)

    return begin


def tensorboard() -> Open:
    """The folder tensorboard/ with scalars by round: `tensorboard --logdir runs`."""

    def begin(folder: Path, experiment: Experiment, quiet: bool) -> Sink:
        from tensorboardX import SummaryWriter

        directory = files.make_folder(folder / "tensorboard")
        old = list(directory.glob("events.out.tfevents.*"))
        for file in old:
            file.unlink()
        # An open TensorBoard has read the old files; this makes it drop them.
        writer = SummaryWriter(str(directory), purge_step=1 if old else None)

        def write(rows: Sequence[Row]) -> None:
            for row in rows:
                for name, value in row.items():
                    if name != "round":
                        writer.add_scalar(name, value, int(row["round"]))
            writer.flush()

        return Sink(write, writer.close)

    return begin


def wandb(*, project: str = "pfljax") -> Open:
    """A run of Weights & Biases in this project; a resumed run continues it."""

    def begin(folder: Path, experiment: Experiment, quiet: bool) -> Sink:
        run = _open_wandb(project, folder, experiment, quiet)
        # Rounds that the server already has are the same, to the bit.
        first = run.starting_step

        def write(rows: Sequence[Row]) -> None:
            for row in rows:
                if row["round"] >= first:
                    run.log(row, step=int(row["round"]))

        return Sink(write, run.finish)

    return begin


def _open_wandb(project: str, folder: Path, experiment: Experiment, quiet: bool) -> Any:
    """The run of Weights & Biases whose name is in wandb/id."""
    import wandb as client

    directory = files.make_folder(folder / "wandb")
    _remove_unsent(directory)
    name = directory / "id"
    if not name.exists():
        files.write_text(name, secrets.token_hex(4))
    settings = client.Settings(
        console="off",  # else it would stand between the run and its terminal
        silent=quiet,
        symlink=False,  # which other programs may follow
    )
    # Offline there is nothing to resume, and asking for it gives a warning.
    if client.setup(settings).settings.mode != "offline":
        settings.resume = "allow"
    try:
        return client.init(
            project=project,
            dir=str(folder),
            id=name.read_text("utf-8").strip(),
            name=experiment.label,
            config=config.to_json(experiment),
            reinit="create_new",  # several runs may be open in one process
            settings=settings,
        )
    except client.Error as error:
        # There is no login, or the server is not reached.
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(
            f"log has wandb, which cannot start: {reason}; `wandb login` once (or "
            "WANDB_API_KEY), or WANDB_MODE=offline to send the run later"
        ) from None


def _remove_unsent(directory: Path) -> None:
    """Removes offline runs that were never sent: their rounds are written again."""
    for old in directory.glob("offline-run-*"):
        if not any(old.glob("*.synced")):
            shutil.rmtree(old)


SINKS: dict[str, Callable[..., Open]] = {
    "csv": csv,
    "tensorboard": tensorboard,
    "wandb": wandb,
}
PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}  # that they import
NOTHING = Sink(write=lambda rows: None, close=lambda: None)


def check(experiment: Experiment) -> None:
    """Refuses a sink that would not write what it should.

    Raises:
      ValueError: its package cannot be imported.
      FolderError: the folder has settings of Weights & Biases, which would read them if
        the program runs in that folder, and could send the log to another server.
    """
    if any(choice.name == "wandb" for choice in experiment.log):
        for name in ("wandb", ".wandb"):
            settings = Path(experiment.folder) / name / "settings"
            if settings.exists():
                raise files.FolderError(
                    f"{settings} is not of pfljax, and could send the log elsewhere; "
                    "delete it, and set WANDB_BASE_URL or `wandb login --host` instead"
                )
    _check_installed(experiment.log)
    for choice in experiment.log:
        opens = factories.build("log", SINKS, choice)
        expected = f"a function of {', '.join(OPENED_BY)}"
        requirements.require_call(f"what {choice} returns", opens, OPENED_BY, expected)


def _check_installed(choices: Iterable[Component]) -> None:
    for choice in choices:
        package = PACKAGES.get(choice.name)
        if package is None:
            continue
        try:
            importlib.import_module(package)
        except Exception as error:  # a broken package may raise anything
            raise ValueError(
                f"log has {choice.name}, but {package} cannot be imported "
                f"({type(error).__name__}: {error}): "
                f"pip install 'pfljax[{choice.name}]'"
            ) from None


def begin(
    folder: Path, experiment: Experiment, lines: Iterable[Line], quiet: bool = True
) -> Sink:
    """All sinks of the run as one, with these lines of its log."""
    opened: list[Sink] = []

    def write(rows: Sequence[Row]) -> None:
        for sink in opened:
            sink.write(rows)

    def close() -> None:
        for sink in opened:
            sink.close()

    for choice in experiment.log:
        opens = factories.build("log", SINKS, choice)
        opened.append(opens(folder, experiment, quiet))
    write([make_row(line) for line in lines])
    return Sink(write, close)


def make_row(line: Mapping[str, Any]) -> Row:
    """The numbers of a line of metrics.jsonl; "personal/test/accuracy" is a mean."""
    row: Row = {}
    for name, value in line.items():
        if isinstance(value, int | float):
            row[name] = value
    for name, value in line.get("dissimilarity", {}).items():
        row[f"dissimilarity/{name}"] = value
    for record in line.get("evaluations", ()):
        model = record["model"] if record["when"] == NEWEST else "trained"
        clients = record["clients"].replace(" ", "_")
        group = "" if clients == "all" else f"{clients}/"
        for name, figures in record["metrics"].items():
            row[f"{group}{model}/{record['split']}/{name}"] = figures["mean"]
    # JSON has None for what is not finite.
    return {name: value for name, value in row.items() if value is not None}
