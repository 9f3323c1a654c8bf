"""Runs of the FedProx paper's cases, their curves, and the rows of a table.

Li et al., MLSys 2020, https://arxiv.org/abs/1812.06127, section 5 and appendix C. A
round has ten devices, 20 epochs of batches of 10, plain SGD and multinomial logistic
regression. A straggler runs 1 to E - 1 epochs; FedAvg drops it, and FedProx keeps its
work. The loss is the mean over the training examples of all devices, and the accuracy
that over all their test examples, both with the server's model.

The paper scale is the paper's: 30 devices and 200 rounds, or 1,000 devices and 100
rounds. The small scale has 20 rounds of 5 epochs, and every tenth example of MNIST on
100 devices.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from cases import MUS, SHARES, Case, fedprox
from problems import MODELS, RATES, ROUNDS, TITLES, Scale, federation

from pfljax.core.components import Component
from pfljax.runs.result import result
from pfljax.runs.settings import Experiment
from pfljax.runtime.devices import use_compile_cache
from pfljax.simulate.run import run

BASE = Experiment(
    cohort=10,
    epochs=20,
    batch_size=10,
    lr=0.01,
    dissimilarity=True,
    devices=1,
)
EVERY = 2  # rounds between two evaluations


class Curve(NamedTuple):
    """What the runs of a case recorded, by seed and evaluation."""

    case: Case
    rounds: np.ndarray  # i[T]
    loss: np.ndarray  # f[S, T], over all training rows
    accuracy: np.ndarray  # f[S, T], percent of all test rows
    b: np.ndarray  # f[S, T], B
    variance: np.ndarray  # f[S, T]
    mu: np.ndarray  # f[S, T]; NaN of methods without


class Row(NamedTuple):
    """A case in a table: means over seeds at the end, and their sample std."""

    dataset: str
    stragglers: float
    epochs: int
    method: str
    seeds: int
    rounds: int
    loss: float
    loss_std: float
    accuracy: float
    accuracy_std: float
    stopped: float  # accuracy where the paper takes it, `stop`
    variance: float
    mu: float


def experiment(case: Case, scale: Scale, rounds: int | None) -> Experiment:
    """The settings of a case."""
    small = scale == "small"
    planned = ROUNDS.get(case.dataset, 200)
    if case.dataset == "shakespeare" and not small:
        raise ValueError(
            "shakespeare is at the small scale alone, the paper's is hours of a CPU; "
            "give --scale small"
        )
    return BASE.replace(
        algorithm=Component(case.method, dict(case.hyper)),
        model=MODELS.get(case.dataset, "logistic"),
        lr=RATES.get(case.dataset, 0.01),
        rounds=rounds or (20 if small else planned),
        epochs=case.epochs or (5 if small else 20),
        stragglers=case.stragglers,
        drop_stragglers=case.drop,
        selection=case.selection,
        eval_every=EVERY,
    )


def folder_of(case: Case, settings: Experiment) -> str:
    """A name that says all of a case: figures that share one share its runs."""
    hyper = "".join(f"-{name}{value}" for name, value in case.hyper)
    kept = "drop" if case.drop else "keep"
    return (
        f"{case.dataset}/{case.method}{hyper}-{case.selection}-{kept}"
        f"{100 * case.stragglers:g}-E{settings.epochs}"
        f"-R{settings.rounds}"
    )


def curve(
    case: Case, scale: Scale, seeds: Sequence[int], rounds: int | None, out: Path
) -> Curve:
    """The runs of a case, a seed each; what is finished is not run again."""
    settings = experiment(case, scale, rounds)
    place = out / folder_of(case, settings)
    print(place, file=sys.stderr, flush=True)
    folders = [place / f"s{seed}" for seed in seeds]
    for seed, folder in zip(seeds, folders, strict=True):
        made = federation(case.dataset, scale, seed)
        of_seed = settings.replace(seed=seed, out=str(folder))
        run(of_seed, made, quiet=True, report=False)
    read = [recorded(folder) for folder in folders]
    evaluated = [line["round"] for line in read[0]]
    return Curve(
        case=case,
        rounds=np.array(evaluated),
        loss=by_seed(read, "dissimilarity", "loss"),
        accuracy=np.array([[100 * accuracy(line) for line in lines] for lines in read]),
        b=by_seed(read, "dissimilarity", "b"),
        variance=by_seed(read, "dissimilarity", "variance"),
        mu=np.array([[line.get("train_mu", np.nan) for line in each] for each in read]),
    )


def recorded(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log that have evaluations."""
    return [line for line in result(folder).metrics if "evaluations" in line]


def by_seed(runs: list[list[dict[str, Any]]], group: str, name: str) -> np.ndarray:
    """A number of each line, f[S, T]; NaN where it was not finite."""
    values = [[line[group][name] for line in lines] for lines in runs]
    return np.array(values, float)


def accuracy(line: dict[str, Any]) -> float:
    """Of the server's model, over the test rows of all devices."""
    for record in line["evaluations"]:
        if record["model"] == "server" and record["clients"] == "all":
            return record["metrics"]["accuracy"]["weighted"]
    raise ValueError(f"round {line['round']} has no evaluation of the server's model")


def row_of(one: Curve, epochs: int) -> Row:
    """The end of a curve."""
    last_mu = one.mu[:, -1]
    of_seeds = zip(one.accuracy, one.loss, strict=True)
    return Row(
        dataset=TITLES[one.case.dataset],
        stragglers=one.case.stragglers,
        epochs=one.case.epochs or epochs,
        method=one.case.label,
        seeds=len(one.loss),
        rounds=int(one.rounds[-1]),
        loss=float(one.loss[:, -1].mean()),
        loss_std=spread(one.loss[:, -1]),
        accuracy=float(one.accuracy[:, -1].mean()),
        accuracy_std=spread(one.accuracy[:, -1]),
        stopped=float(np.mean([run[stop(loss)] for run, loss in of_seeds])),
        variance=float(one.variance[:, -1].mean()),
        mu=float(last_mu.mean()),
    )


def stop(loss: np.ndarray) -> int:
    """The evaluation at which the paper takes a run's accuracy, of losses f[T].

    Where the loss has converged, to 1e-4 a round, or diverged, by 1 in ten rounds; else
    the last.
    """
    steps = np.abs(np.diff(loss, prepend=np.inf))
    converged = steps < 1e-4 * EVERY
    before = np.concatenate([np.full(10 // EVERY, np.inf), loss])[: len(loss)]
    diverged = ~np.isfinite(loss) | (loss - before > 1)
    ended = np.flatnonzero(converged | diverged)
    return int(ended[0]) if len(ended) else len(loss) - 1


def spread(values: np.ndarray) -> float:
    """Sample std over seeds; NaN of one."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def run_all(
    cases: Sequence[Case],
    scale: Scale,
    seeds: Sequence[int],
    rounds: int | None,
    out: str | None,
) -> tuple[list[Curve], list[Row]]:
    """The curves of these cases and a table's rows."""
    use_compile_cache()
    # One folder for all figures, which have cases in common.
    place = Path(out or f"runs/fedprox-{scale}")
    curves = [curve(case, scale, seeds, rounds, place) for case in cases]
    epochs = 5 if scale == "small" else 20
    return curves, [row_of(one, epochs) for one in curves]


def losses_by_mu(
    dataset: str, scale: Scale, seed: int, rounds: int | None, out: str | None
) -> dict[float, float]:
    """FedProx's training loss at the end, where most are late, for each mu of `MUS`."""
    cases = [fedprox(dataset, mu, max(SHARES)) for mu in MUS]
    curves, _ = run_all(cases, scale, (seed,), rounds, out)
    last = [float(one.loss[0, -1]) for one in curves]
    return dict(zip(MUS, last, strict=True))


def best_of(losses: Mapping[float, float]) -> float:
    """The mu of the lowest loss; one that has diverged is never the best."""
    finite = {mu: loss for mu, loss in losses.items() if np.isfinite(loss)}
    if not finite:
        raise ValueError("no mu of the grid has a finite loss; choose smaller rates")
    return min(finite, key=finite.__getitem__)


def markdown(title: str, rows: Sequence[Row]) -> str:
    """The table of the last round."""
    count = rows[0].seeds
    lines = [
        f"### {title}, {count} seed{'s' * (count > 1)}\n",
        "| data | stragglers | E | rounds | method | training loss | accuracy, % | "
        "by the paper's rule | gradient variance |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        texts = (
            row.dataset,
            f"{100 * row.stragglers:g} %",
            f"{row.epochs}",
            f"{row.rounds}",
            row.method,
            f"{row.loss:.3f}{_over_seeds(row.loss_std, 3)}",
            f"{row.accuracy:.2f}{_over_seeds(row.accuracy_std, 2)}",
            f"{row.stopped:.2f}",
            f"{row.variance:.3g}",
        )
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def _over_seeds(std: float, digits: int) -> str:
    """The std behind a mean; nothing of one seed."""
    return "" if np.isnan(std) else f" ± {std:.{digits}f}"


def of(curves: Sequence[Curve], **wanted: Any) -> list[Curve]:
    """The curves of cases with these values."""

    def fits(one: Curve) -> bool:
        return all(getattr(one.case, name) == value for name, value in wanted.items())

    return [one for one in curves if fits(one)]
