"""MOCHA on real clients, compared with local models and one model (NeurIPS 2017).

Smith et al., https://arxiv.org/abs/1705.10467: the question of its table of errors.

    python experiments/relations/mocha_convex.py --raw FOLDER --scale small
    python experiments/relations/mocha_convex.py --raw FOLDER --scale paper

FOLDER holds uci_har.npz (windows of 128 x 9: halves of `seg` that `halves` numbers, y,
user, class_names) and landmine.npz (x, y, task). The models are linear support vector
machines. They train on 75 % of each client's examples in ten random splits, and the
table shows the mean error over clients. lam is chosen on validation examples, a fifth
of the training examples, for all splits at once; then all training examples train. The
paper uses cross-validation with five folds, split by split.

Activity: sitting or not, by 30 persons. The archive lacks the published 561 features
and has 168 others, which are simple statistics of the windows. Landmine: a mine or not,
in 29 fields. Only 6 % of the examples are mines, so a model that never predicts a mine
has an error of 6 %. The published errors of 20 % and more come from other examples or
another error. So there is a second task, with as many examples without a mine as with
one.

"global" is one machine for the examples of all clients, and its error is over all
examples. "FedAvg" is logistic regression, which chooses its learning rate. The
published numbers (`mocha_published.csv`) are unverified, because we could not read them
again.

The small scale has five splits, fewer values of lam, and a tenth of the rounds.
"""

import csv
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from tyro.conf import arg

from pfljax import data
from pfljax.data import Arrays, Federation
from pfljax.runs.settings import Experiment
from pfljax.runtime.devices import use_compile_cache

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
from shared import best_round, script  # noqa: E402
from shared.published import decimals, std_over_seeds, with_std  # noqa: E402
from shared.swept import Sweep, sweep  # noqa: E402

VALIDATION = 0.15  # of all rows, a fifth of those to train on
NEVER = 10**6  # rounds of a period that no run has
PAPER = Experiment(
    algorithm="mocha",
    model="logistic",
    clients=None,
    rounds=1000,
    epochs=1,
    batch_size=10,
    devices=1,
)
LAMS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


class Scale(NamedTuple):
    """How much is run."""

    seeds: tuple[int, ...]
    lams: tuple[float, ...]
    rounds: int
    period: int


SCALES = {
    "small": Scale((0, 1, 2, 3, 4), LAMS[1:-1], rounds=100, period=20),
    "paper": Scale(tuple(range(10)), LAMS, rounds=1000, period=100),
}


class Row(NamedTuple):
    """What a method reached on a data set: errors in percent."""

    data: str
    method: str
    seeds: int
    rounds: int
    chosen: float  # lam, or FedAvg's learning rate
    validation: float  # its error on validation rows
    error: float  # on test rows, mean over splits
    std: float  # sample std over splits
    worst: float  # the client of the largest error, mean over splits; NaN of one
    published: float  # NaN where there is none


class Way(NamedTuple):
    """A method as it is run: its settings, and what it chooses among."""

    experiment: Experiment
    over: str
    values: tuple[float, ...]
    evaluated: str = "personal"
    pooled: bool = False  # all rows are those of one client, split anew


def stored_in(folder: Path, name: str) -> dict[str, np.ndarray]:
    """The arrays of a file there."""
    if not (folder / name).is_file():
        raise ValueError(
            f"--raw is {folder}, which has no {name}; expected the folder of "
            "uci_har.npz and landmine.npz"
        )
    return dict(np.load(folder / name))


def activity(folder: Path) -> Arrays:
    """Sitting or not, of 30 persons."""
    stored = stored_in(folder, "uci_har.npz")
    windows = stored["seg"][stored["halves"]].reshape(len(stored["y"]), 128, 9)
    sitting = np.flatnonzero(stored["class_names"] == "SITTING")[0]
    return of_rows(features(windows), stored["y"] == sitting, stored["user"])


def landmine(folder: Path, balanced: bool = False) -> Arrays:
    """A mine or not, in 29 fields; `balanced` has as many rows without one in each."""
    stored = stored_in(folder, "landmine.npz")
    x, y, task = stored["x"], stored["y"], stored["task"]
    if balanced:
        kept = np.sort(
            np.concatenate([even(y, task, each) for each in np.unique(task)])
        )
        x, y, task = x[kept], y[kept], task[kept]
    return of_rows(x, y, task)


DATA: dict[str, Callable[[Path], Arrays]] = {
    "activity": activity,
    "landmine": landmine,
    "landmine, balanced": partial(landmine, balanced=True),
}


def even(y: np.ndarray, task: np.ndarray, each: int) -> np.ndarray:
    """Numbers of the rows of a field: all mines, and as many others at random."""
    mines = np.flatnonzero((task == each) & (y == 1))
    others = np.flatnonzero((task == each) & (y == 0))
    drawn = np.random.default_rng(each).permutation(others)[: len(mines)]
    return np.concatenate([mines, drawn])


def of_rows(x: np.ndarray, y: np.ndarray, client: np.ndarray) -> Arrays:
    """The rows with every feature of mean 0 and std 1."""
    spread = np.maximum(x.std(0), 1e-6)
    x = ((x - x.mean(0)) / spread).astype(np.float32)
    return data.from_arrays(x, y.astype(np.int32), client=client)


def features(windows: np.ndarray) -> np.ndarray:
    """Statistics of windows [N, 128, 9], f32[N, 168].

    Of nine channels and the lengths of their three vectors: mean, std, least, greatest,
    mean size, mean change, and the log power in eight bands.
    """
    vectors = windows.reshape(len(windows), -1, 3, 3)
    signals = np.concatenate([windows, np.linalg.norm(vectors, axis=3)], 2)
    spectrum = np.abs(np.fft.rfft(signals, axis=1)[:, 1:]) ** 2
    power = spectrum.reshape(len(windows), 8, -1, signals.shape[2]).mean(2)
    change = np.abs(np.diff(signals, axis=1)).mean(1)
    size = np.abs(signals).mean(1)
    parts = [f(signals, axis=1) for f in (np.mean, np.std, np.min, np.max)]
    parts += [size, change, *np.moveaxis(np.log(power + 1e-6), 1, 0)]
    return np.concatenate(parts, 1)


def federation(arrays: Arrays, validation: float, seed: int) -> Federation:
    """The clients, a quarter of whose rows are for test."""
    return data.federate(
        arrays,
        "natural",
        num_clients=None,
        seed=seed,
        test=0.25,
        validation=validation,
    )


def ways(scale: Scale) -> dict[str, Way]:
    """The methods."""
    base = PAPER.replace(rounds=scale.rounds, eval_every=scale.rounds)
    alone = base.replace(algorithm=f"mocha:period={NEVER}")
    related = base.replace(algorithm=f"mocha:period={scale.period}")
    averaged = base.replace(algorithm="fedavg")
    rates = (0.01, 0.1, 1.0)
    return {
        "local": Way(alone, "lam", scale.lams),
        "global": Way(alone, "lam", scale.lams, pooled=True),
        "FedAvg": Way(averaged, "lr", rates, evaluated="server"),
        "MOCHA": Way(related, "lam", scale.lams),
    }


def row_of(
    name: str,
    method: str,
    way: Way,
    arrays: Arrays,
    seeds: Sequence[int],
    out: Path,
) -> Row:
    """The errors of a method: first its lam is chosen, then it trains on more rows."""
    client = np.zeros_like(arrays.y) if way.pooled else arrays.client
    assert client is not None
    arrays = arrays._replace(client=client)
    experiment = way.experiment.replace(cohort=len(np.unique(client)))

    def runs(values: Sequence[float], validation: float, folder: str) -> Sweep:
        made = partial(federation, arrays, validation)
        over = {way.over: values, "seed": seeds}
        return sweep(
            experiment, over, out=out / name / method / folder, federation=made
        )

    tuning = runs(way.values, VALIDATION, "tuning")
    tried = errors(tuning, f"{way.evaluated}/validation/accuracy").mean(1)
    tried = tried.reshape(len(way.values), len(seeds)).mean(1)
    chosen = way.values[int(np.argmin(tried))]
    last = errors(runs([chosen], 0.0, "last"), f"{way.evaluated}/test/accuracy")
    return Row(
        data=name,
        method=method,
        seeds=len(seeds),
        rounds=experiment.rounds,
        chosen=chosen,
        validation=float(tried.min()),
        error=float(last.mean()),
        std=float(std_over_seeds(last.mean(1))),
        worst=float("nan") if way.pooled else float(last.max(1).mean()),
        published=published(name, method),
    )


def errors(runs: Sweep, metric: str) -> np.ndarray:
    """The error of each run and client after the last round, percent, f[R, C]."""
    return 100 * (1 - runs.stacked(metric)[:, -1])


def published(name: str, method: str) -> float:
    """The paper's error, percent; NaN where it has none."""
    with open(HERE / "mocha_published.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if (row["data"], row["method"]) == (name, method):
                return float(row["error"])
    return float("nan")


def markdown(rows: Sequence[Row]) -> str:
    """A table of all data sets."""
    lines = [
        "| data | method | published, unverified | error, % | worst client | chosen |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        texts = (
            row.data,
            row.method,
            decimals(row.published),
            with_std(row.error, row.std),
            decimals(row.worst),
            f"{row.chosen:g}",
        )
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def main(
    raw: Annotated[str, arg(help="The folder with uci_har.npz and landmine.npz.")],
    scale: Literal["small", "paper"] = "small",
    seeds: Annotated[
        tuple[int, ...], script.SEEDS, arg(help="Splits; else the scale's.")
    ] = (),
    rounds: script.Rounds = None,
    sets: Annotated[tuple[Literal[tuple(DATA)], ...], arg(metavar="DATA ...")] = (),
    out: script.Out = None,
    results: script.Results = None,
) -> list[Row]:
    """MOCHA on real clients, beside machines of their own and one for all."""
    use_compile_cache()
    size = SCALES[scale]
    if rounds:
        size = size._replace(rounds=rounds)
    folder = Path(out or f"runs/mocha-{scale}" + (f"-{rounds}" if rounds else ""))
    rows = []
    for name in sets or DATA:
        arrays = DATA[name](Path(raw))
        for method, way in ways(size).items():
            print(f"{name}, {method}", file=sys.stderr, flush=True)
            row = row_of(name, method, way, arrays, seeds or size.seeds, folder)
            rows.append(row)
    text = markdown(rows)
    print(text)
    place = Path(results) if results else HERE / "results"
    best_round.write(place / f"mocha_convex_{scale}", rows, text)
    return rows


if __name__ == "__main__":
    script.run(main)
