"""evaluations/R.npz: metrics of each client after round R, while a run goes.

per_client.npz has them all in one, from the run's end on. Written anew at each
evaluation, it would take the square of their number.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pfljax.runs import folder
from pfljax.runtime import files

FOLDER = "evaluations"


def write(run: Path, round_: int, by_client: Mapping[str, np.ndarray]) -> None:
    """Writes the metrics [C] by name after this round, whole or not at all."""
    files.make_folder(run / FOLDER)
    folder.write_arrays(_file(run, round_), by_client)


def read(run: Path, round_: int) -> dict[str, np.ndarray]:
    """The metrics [C] by name after this round; empty where there is no file."""
    return folder.read_arrays(_file(run, round_))


def clear(run: Path) -> None:
    """Removes what per_client.npz has in one file now."""
    shutil.rmtree(run / FOLDER, ignore_errors=True)


def _file(run: Path, round_: int) -> Path:
    return run / FOLDER / f"{round_}.npz"
