"""Where the log of a run goes beside metrics.jsonl: CSV, TensorBoard, Weights & Biases.

Each is begun anew, with the rounds up to the checkpoint, whenever a run begins or goes
on. So it holds every round once, whatever a kill has left in it.
"""

import csv as csv_format
import importlib
import importlib.util
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pfljax import registry
from pfljax.registry import Component
from pfljax.runs import config
from pfljax.runs.log import NEWEST, Line
from pfljax.runs.settings import Experiment
from pfljax.runtime import files

Row = dict[str, float]  # numbers of a round by name, "round" among them


class Sink(NamedTuple):
    """Takes the rounds of a run as they are logged."""

    write: Callable[[Sequence[Row]], None]
    close: Callable[[], None]


class Begun(NamedTuple):
    """What a sink begins with."""

    folder: Path
    experiment: Experiment
    quiet: bool = True


Open = Callable[[Begun], Sink]


def csv() -> Open:
    """metrics.csv: a line a round, a column a number."""

    def begin(begun: Begun) -> Sink:
        file = begun.folder / "metrics.csv"
        file.unlink(missing_ok=True)
        columns: list[str] = []

        def write(rows: Sequence[Row]) -> None:
            known = len(columns)
            for row in rows:
                columns.extend(name for name in row if name not in columns)
            if len(columns) > known:
                _widen(file, columns)
            with open(file, "a", encoding="utf-8", newline="") as end:
                csv_format.DictWriter(end, columns).writerows(rows)

        return Sink(write, close=lambda: None)

    return begin


def _widen(file: Path, columns: Sequence[str]) -> None:
    """Writes the file anew with these columns, of which some are new."""
    rows: list[dict[str, str]] = []
    if file.exists():
        with open(file, encoding="utf-8", newline="") as old:
            rows = list(csv_format.DictReader(old))
    with (
        files.whole(file) as part,
        open(part, "w", encoding="utf-8", newline="") as new,
    ):
        writer = csv_format.DictWriter(new, columns)
        writer.writeheader()
        writer.writerows(rows)


def tensorboard() -> Open:
    """tensorboard/: scalars by round, for `tensorboard --logdir runs`."""

    def begin(begun: Begun) -> Sink:
        from tensorboardX import SummaryWriter

        directory = files.make_folder(begun.folder / "tensorboard")
        old = list(directory.glob("events.out.tfevents.*"))
        for file in old:
            file.unlink()
        # A TensorBoard that is open has read the old ones, and is to forget them.
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
    """Weights & Biases: one run of the project, which is found again by wandb/id."""

    def begin(begun: Begun) -> Sink:
        import wandb as client

        directory = files.make_folder(begun.folder / "wandb")
        _forget_unsent(directory)
        settings = client.Settings(
            console="off",  # or it would stand between the run and its terminal
            silent=begun.quiet,
            symlink=False,  # which other programs may follow
        )
        # Offline there is nothing to go on from, and to ask for it is a warning.
        if client.setup(settings).settings.mode != "offline":
            settings.resume = "allow"
        try:
            run = client.init(
                project=project,
                dir=str(begun.folder),
                id=_id(directory / "id"),
                name=begun.experiment.label,
                config=config.to_json(begun.experiment),
                reinit="create_new",  # runs that train at once are open at once
                settings=settings,
            )
        except client.Error as error:
            # Nobody is logged in, or the server is not reached.
            said = " ".join(str(error).split()).rstrip(".")
            raise ValueError(
                f"log has wandb, which does not begin: {said}; `wandb login` once (or "
                "WANDB_API_KEY), or WANDB_MODE=offline to send the run later"
            ) from None
        # What the server has is of the same bits: rounds are a function of settings.
        first = run.starting_step

        def write(rows: Sequence[Row]) -> None:
            for row in rows:
                if row["round"] >= first:
                    run.log(row, step=int(row["round"]))

        return Sink(write, run.finish)

    return begin


def _id(file: Path) -> str:
    """The run's name at Weights & Biases, made once."""
    if not file.exists():
        files.write_text(file, secrets.token_hex(4))
    return file.read_text("utf-8").strip()


def _forget_unsent(place: Path) -> None:
    """Removes what was written offline and never sent: it is written again."""
    for old in place.glob("offline-run-*"):
        if not any(old.glob("*.synced")):
            shutil.rmtree(old)


SINKS: dict[str, Callable[..., Open]] = {
    "csv": csv,
    "tensorboard": tensorboard,
    "wandb": wandb,
}
PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}  # what they import
NOTHING = Sink(write=lambda rows: None, close=lambda: None)


def check_installed(choices: Iterable[Component]) -> None:
    """Raises a ValueError for a sink whose package is not there, or does not load."""
    for choice in choices:
        package = PACKAGES.get(choice.name)
        if package is None:
            continue
        install = f"pip install 'pfljax[{choice.name}]'"
        if importlib.util.find_spec(package) is None:
            raise ValueError(
                f"log has {choice.name}, but {package} is not installed: {install}"
            )
        try:
            importlib.import_module(package)
        except Exception as error:  # of a package that is broken, anything
            raise ValueError(
                f"log has {choice.name}, but {package} does not load "
                f"({type(error).__name__}: {error}): {install}"
            ) from None


def begin(begun: Begun, lines: Iterable[Line]) -> Sink:
    """The sinks of the run's settings as one, which holds these lines of its log."""
    opened: list[Sink] = []

    def close() -> None:
        for sink in opened:
            sink.close()

    def write(rows: Sequence[Row]) -> None:
        for sink in opened:
            sink.write(rows)

    rows = [make_row(line) for line in lines]
    for choice in begun.experiment.log:
        make = registry.find("log", SINKS, choice.name)
        opened.append(make(**choice.options)(begun))
    write(rows)
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
