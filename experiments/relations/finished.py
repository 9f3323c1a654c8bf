"""Reads finished runs of several seeds for the studies of relations."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pfljax.core.types import RunState
from pfljax.data import Federation
from pfljax.report.style import save_figure
from pfljax.runs.result import Result, result
from pfljax.runs.settings import Experiment
from pfljax.simulate.export import load_state
from pfljax.simulate.run import run

HERE = Path(__file__).parent
# Studies lie in no package.
sys.path.append(str(HERE.parent))
from shared import best_round  # noqa: E402
from shared import script as script  # noqa: E402
from shared.published import std_over_seeds as std_over_seeds  # noqa: E402
from shared.published import with_std  # noqa: E402


class Finished(NamedTuple):
    """A run: what it recorded, and the state that it ended with."""

    record: Result
    state: RunState


def finished(
    experiment: Experiment,
    seeds: Sequence[int],
    out: Path,
    make: Callable[[int], Federation] | None = None,
) -> list[Finished]:
    """The runs of an experiment under these seeds, each in its folder of `out`.

    What is finished is not run again. `make` makes the clients of a seed, where no
    settings do.
    """
    print(f"{out}", file=sys.stderr, flush=True)
    ended = []
    for seed in seeds:
        federation = make(seed) if make else None
        folder = out / f"s{seed}"
        seeded = experiment.replace(seed=seed, out=str(folder))
        run(seeded, federation, quiet=True, report=False)
        _, _, state = load_state(folder, federation)
        ended.append(Finished(record=result(folder), state=state))
    return ended


def accuracy(record: Result, name: str) -> float:
    """The last mean over clients of a metric such as "server/test/accuracy", percent.

    NaN where nobody is evaluated so.
    """
    if name not in record.clients:
        return float("nan")
    return float(100 * np.nanmean(record.clients[name][-1]))


def mean_and_std(values: Sequence[float]) -> str:
    """Over seeds, to two decimals; nothing where there is no number."""
    if np.isnan(values).all():
        return ""
    mean = float(np.mean(values))
    return with_std(mean, float(std_over_seeds(np.asarray(values))))


def write(name: str, rows: Sequence[Any], text: str, figure: Any, place: Path) -> None:
    """Prints the table, and writes it and its figure below `place`."""
    print(text)
    best_round.write(place / "results" / name, rows, text)
    (place / "figures").mkdir(parents=True, exist_ok=True)
    save_figure(figure, place / "figures" / name)
