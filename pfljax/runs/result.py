"""What a run came to, by name: `result.personal.test.accuracy`, or its summary."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pfljax.runs import folder as folder_files
from pfljax.runs.folder import FolderError
from pfljax.runs.judged import Evaluation, Model, of_line, table
from pfljax.runs.named_fields import assign, refuse


@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False)
class Result:
    """What a run came to.

    `last` is the evaluation after its last round, whose models stand beside it:
    `result.personal.test.accuracy`. `best` is that of the round chosen on validation
    rows. `summary` is the whole of summary.json, with traffic, mixture and the rest.
    """

    folder: Path
    rounds: int
    summary: Mapping[str, Any]
    last: Evaluation
    best: Evaluation
    personal: Model
    server: Model

    def __init__(self, folder: Path, summary: Mapping[str, Any]) -> None:
        last = of_line(summary["last"])
        assign(self, {"folder": folder, "rounds": summary["rounds"]})
        assign(self, {"summary": summary, "last": last, **last.models()})
        chosen = summary.get("chosen_on_validation")
        if chosen is not None:
            assign(self, {"best": of_line(chosen)})

    def __repr__(self) -> str:
        label = self.summary.get("label") or self.folder.name
        head = f"{label}, seed {self.summary.get('seed')}, {self.rounds} rounds"
        if "best" in vars(self):
            head += f"; best on validation rows: round {self.best.round}"
        return f"{head}\n{table(self.last.models())}"

    if not TYPE_CHECKING:
        __getattr__ = refuse


def result(folder: str | Path) -> Result:
    """The result of a finished run, of its folder, as `run` gives it.

    Raises:
      FolderError: the run in it is not finished, or it is no run folder.
      FileError: its summary.json is not what was written.
    """
    path = Path(folder)
    if not (path / "summary.json").exists():
        folder_files.read_config(path)  # first of all it must be a run
        raise FolderError(f"{path} is not finished; go on: pfljax resume {path}")
    return Result(path, folder_files.read_json(path / "summary.json"))
