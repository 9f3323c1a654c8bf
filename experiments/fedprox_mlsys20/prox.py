"""What the figures of the FedProx paper share: data sets, cases, runs, curves.

Li et al., MLSys 2020, https://arxiv.org/abs/1812.06127, section 5 and appendix C: ten
devices a round, 20 epochs of batches of 10, plain SGD, multinomial logistic regression.
A straggler runs 1 to E - 1 epochs; FedAvg drops it, FedProx keeps what it did. Loss is
the mean over the training rows of all devices, accuracy over all their test rows, both
at the server's model.

Of the paper's five data sets of Figure 1 Synthetic(1, 1) and MNIST are run, and the
other three synthetic sets. FEMNIST is run for whoever has the official generator's JSON
files, in train and test below `femnist` where the script is called. 20 epochs of an
LSTM on Shakespeare are hours of a CPU: of it there is a small row alone, with 20 roles,
50 rows each of 20 characters, and an LSTM of one layer of 32. Sent140 is not there: its
LSTM starts from vectors of words (GloVe) that are a download of their own. Each seed
draws synthetic data, partition, parameters and cohorts anew, where the paper has one
draw of all.

The paper scale is the paper's: 30 devices and 200 rounds, 1,000 devices and 100 rounds.
The small scale has 20 rounds of 5 epochs, and of MNIST every tenth row, 100 devices.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from tyro.conf import arg

from pfljax import data
from pfljax.data import Federation
from pfljax.registry import Choice
from pfljax.report.runs import read_run
from pfljax.report.style import GREY, GRID, PALETTE, SETTINGS, save_figure
from pfljax.runs.settings import Experiment
from pfljax.runtime.devices import use_compile_cache
from pfljax.simulate.run import run_at_once

HERE = Path(__file__).parent
# What the replications share lies beside the papers' folders, in no package.
sys.path.append(str(HERE.parent))
from shared import best_round  # noqa: E402
from shared import script as script  # noqa: E402

Scale = Literal["small", "paper"]
Place = Annotated[str, arg(help="Folder of results/ and figures/; else this one.")]
SYNTHETIC = {  # name -> alpha = beta, None of IID rows
    "synthetic_iid": None,
    "synthetic_0_0": 0.0,
    "synthetic_05_05": 0.5,
    "synthetic_1_1": 1.0,
}
TITLES = {
    "synthetic_iid": "Synthetic-IID",
    "synthetic_0_0": "Synthetic (0, 0)",
    "synthetic_05_05": "Synthetic (.5, .5)",
    "synthetic_1_1": "Synthetic (1, 1)",
    "mnist": "MNIST",
    "femnist": "FEMNIST",
    "shakespeare": "Shakespeare, small",
}
BASE = Experiment(
    model="logistic",
    cohort=10,
    epochs=20,
    batch_size=10,
    lr=0.01,
    dissimilarity=True,
    devices=1,
)
# The paper: 143 devices of 3,616 rows of 80 characters, an LSTM of two layers of 256.
SHAKESPEARE: dict[str, Any] = {
    "model": "char_lstm:hidden=32,layers=1",
    "lr": 0.8,
}
DEVICES, MOST_ROWS, CHARACTERS = 20, 50, 20
FEMNIST = "femnist"  # the folder of its files
RATES = {"mnist": 0.03, "femnist": 0.003, "shakespeare": SHAKESPEARE["lr"]}
ROUNDS = {"mnist": 100}
EVERY = 2  # rounds between two evaluations
SHARES = (0.0, 0.5, 0.9)  # of stragglers
BEST_MU = 1.0  # of the paper's grid, on synthetic data and MNIST alike
BEST_MUS = {"shakespeare": 0.001}  # where it is another
MUS = (0.001, 0.01, 0.1, 1.0)  # the paper's grid


STYLES: dict[str, dict[str, Any]] = {
    "FedAvg": {"color": GREY, "linestyle": "--"},
    "FedProx, mu = 0": {"color": PALETTE[0]},
    "FedProx, mu = 1": {"color": PALETTE[1]},
}


class Case(NamedTuple):
    """A curve: who trains how on which data."""

    dataset: str
    label: str
    method: str = "fedavg"
    hyper: tuple[tuple[str, Any], ...] = ()
    stragglers: float = 0.0
    drop: bool = False
    epochs: int | None = None  # None for the scale's
    selection: str = "uniform"


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


def fedavg(dataset: str, stragglers: float = 0.0, **more: Any) -> Case:
    """FedAvg, which drops stragglers."""
    return Case(dataset, "FedAvg", stragglers=stragglers, drop=stragglers > 0, **more)


def fedprox(dataset: str, mu: float, stragglers: float = 0.0, **more: Any) -> Case:
    """FedProx, which keeps what stragglers did."""
    # Without stragglers mu = 0 is FedAvg: one run for both.
    if mu == 0 and not stragglers:
        return fedavg(dataset, **more)._replace(label="FedProx, mu = 0")
    hyper = (("mu", mu),)
    label = f"FedProx, mu = {mu:g}"
    return Case(dataset, label, "fedprox", hyper, stragglers, **more)


def federation(dataset: str, scale: Scale, seed: int) -> Federation:
    """The devices: nine tenths of the rows of each train."""
    small = scale == "small"
    if dataset == "shakespeare":
        arrays = few_roles(seed)
        dealing, devices = "natural", None
    elif dataset == "femnist":
        arrays = data.load("leaf", path=FEMNIST)
        dealing, devices = "natural", None
    elif dataset == "mnist":
        arrays = standardised(data.load("mnist", every=10 if small else 1))
        dealing = "classes_lognormal"
        devices = 100 if small else 1000
    else:
        value = SYNTHETIC[dataset]
        dealing, devices = "natural", None
        if value is None:
            arrays = data.load("synthetic_iid", seed=seed)
        else:
            arrays = data.load("synthetic", alpha=value, beta=value, seed=seed)
    return data.federate(
        arrays,
        dealing,
        num_clients=devices,
        seed=seed,
        test=0.1,
        validation=0.0,
        rows="all",
    )


def few_roles(seed: int) -> data.Arrays:
    """The first rows of roles that are drawn; of each row its last characters."""
    arrays = data.load("shakespeare_roles", stride=80, min_rows=MOST_ROWS)
    assert arrays.client is not None
    roles = np.unique(arrays.client)
    drawn = np.random.default_rng(seed).choice(roles, DEVICES, replace=False)
    kept = [np.flatnonzero(arrays.client == role)[:MOST_ROWS] for role in drawn]
    index = np.concatenate(kept)
    return data.from_arrays(
        arrays.x[index, -CHARACTERS:],
        arrays.y[index],
        client=np.repeat(np.arange(DEVICES), [len(rows) for rows in kept]),
        num_classes=arrays.num_classes,
        scale=1.0,
        name="shakespeare_few_roles",
        source=arrays.source,
    )


def standardised(arrays: data.Arrays) -> data.Arrays:
    """Every pixel to mean 0 and deviation 1 over all rows; all rows may be dealt."""
    pixels = arrays.x.astype(np.float32)
    return arrays._replace(shift=pixels.mean(0), scale=pixels.std(0) + 0.001)


def experiment(case: Case, scale: Scale, rounds: int | None) -> Experiment:
    """The settings of a case."""
    small = scale == "small"
    planned = ROUNDS.get(case.dataset, 200)
    base = BASE
    if case.dataset == "shakespeare":
        if not small:
            raise ValueError(
                "shakespeare is at the small scale alone, the paper's is hours of a "
                "CPU; give --scale small"
            )
        base = BASE.replace(model=SHAKESPEARE["model"])
    return base.replace(
        algorithm=Choice(case.method, dict(case.hyper)),
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
        f"{100 * case.stragglers:g}-E{settings.training.epochs}"
        f"-R{settings.participation.rounds}"
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
        run_at_once([of_seed], [made], quiet=True, report=False)
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
    return [line for line in read_run(folder).rounds if "evaluations" in line]


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


def three_methods(
    datasets: Sequence[str],
    shares: Sequence[float],
    best: Mapping[str, float] | None = None,
    **more: Any,
) -> list[Case]:
    """FedAvg, FedProx of mu = 0 and of the paper's best mu, by data and stragglers.

    `best` has a mu of a data set that stands beside the paper's, if it is another.
    """
    cases = []
    for dataset in datasets:
        of_paper = BEST_MUS.get(dataset, BEST_MU)
        mus = dict.fromkeys([of_paper, (best or {}).get(dataset, of_paper)])
        for share in shares:
            cases.append(fedavg(dataset, share, **more))
            # Without stragglers FedProx of mu = 0 is FedAvg.
            if share:
                cases.append(fedprox(dataset, 0.0, share, **more))
            cases += [fedprox(dataset, mu, share, **more) for mu in mus]
    return cases


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


def grid(curves: Sequence[Curve], quantity: str, label: str, shares: Any) -> Any:
    """Panels by data set, a row, and share of stragglers, a column."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    datasets = list(dict.fromkeys(one.case.dataset for one in curves))
    with rc_context(SETTINGS):
        size = (3.2 * len(shares), 2.6 * len(datasets))
        drawn = Figure(figsize=size, layout="constrained")
        panels = drawn.subplots(len(datasets), len(shares), squeeze=False)
        for dataset, row in zip(datasets, panels, strict=True):
            for share, axes in zip(shares, row, strict=True):
                for one in of(curves, dataset=dataset, stragglers=share):
                    draw(axes, one, quantity, **style_of(one.case))
                axes.set_title(f"{TITLES[dataset]}, {100 * share:g} % late", fontsize=9)
            row[0].set_ylabel(label)
        for axes in panels[-1]:
            axes.set_xlabel("round")
        handles, labels = panels[0][-1].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside upper center", ncols=3)
    return drawn


def style_of(case: Case) -> dict[str, Any]:
    """The colour of a method; one of its own for a mu that is not the paper's."""
    return STYLES.get(case.label, {"color": PALETTE[2]})


def draw(axes: Any, one: Curve, quantity: str, **style: Any) -> None:
    """A quantity of a curve by round: the mean over seeds."""
    values = getattr(one, quantity)
    axes.plot(one.rounds, values.mean(0), label=one.case.label, **style)
    axes.grid(axis="y", **GRID)


def write(name: str, rows: Sequence[Any], text: str, drawn: Any, place: str) -> None:
    """Prints the table, and writes it and its figure below `place`."""
    print(text)
    best_round.write(Path(place) / "results" / name, rows, text)
    if drawn is not None:
        save(name, drawn, place)


def save(name: str, drawn: Any, place: str) -> None:
    """Writes a figure below `place`."""
    folder = Path(place) / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    save_figure(drawn, folder / name)
