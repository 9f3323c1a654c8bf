"""The protocol, methods and tables that the scripts of the SuPerFed paper share.

Hahn, Jeong, Lee, KDD 2022, https://arxiv.org/abs/2109.07628. `published.csv` has the
published numbers (mean and population std over the clients of one run). Those of
SuPerFed use the best lambda of each client on its test examples. Metrics other than the
accuracy are the greatest over all lambdas that are best for some client.

The methods are those of the authors' code, which made the numbers (`methods/`):
proximal terms are not squared, APFL uses the round's w and alpha = 0.25, and pFedMe
trains theta one epoch at a time and is evaluated with w. The code differs from these
scripts as follows:

  SCAFFOLD   It is FedAvg. Here SCAFFOLD runs with plain SGD, which its option II needs,
             at ten times the rate = rate / (1 - 0.9). (Option I diverges with few
             clients.)
  APFL       There is no weight decay on w. Here all parameters have it.
  clients    Clients of Ditto, APFL and SuPerFed that never took part are evaluated with
             a v that was never trained (here `evaluate_untrained`). Here they are
             evaluated with w.
  layers     Layers of one shape have the same initial values. Here each is drawn.
  accuracy   It is the mean over the batches of a client's test examples, where a short
             last batch counts as much as the others (with 500 clients a client has 24
             examples: 10, 10 and 4). Here every example counts equally.
  biases     Biases of batch normalisation (Table 2) are in no proximal term of FedProx,
             Ditto and pFedMe. Here they are.
  noise      Examples are partitioned by the noisy labels. Here the true labels are
             used.

A column of a table is one problem. For each method it is one sweep over the seeds, in
OUT/COLUMN/METHOD. If it is killed, the same command continues with the unfinished runs.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from forms import form
from tyro.conf import arg

from pfljax.core.components import Component
from pfljax.runs import config
from pfljax.runs.folder import read_json
from pfljax.runs.settings import Experiment
from pfljax.runtime import errors
from pfljax.runtime.devices import use_compile_cache

# What the replications share lies beside the papers' folders, in no package.
sys.path.append(str(Path(__file__).parents[1]))
import greatest
from shared import script, swept
from shared.participation import took_part
from shared.published import GREATEST, ORACLE, Cell, cells, published, write
from shared.swept import sweep

NOTHING: Mapping[str, Any] = MappingProxyType({})
ACCURACY: Mapping[str, str] = MappingProxyType({"accuracy": "top1_acc_pct"})
PUBLISHED = Path(__file__).parent / "published.csv"
PROTOCOL = Experiment(
    clients=100,
    cohort=5,
    rounds=500,
    epochs=10,
    batch_size=10,
    lr=0.01,
    lr_decay=0.999,
    momentum=0.9,
    weight_decay=1e-4,
    test=0.2,
    validation=0.0,
    eval_every=50,
)
MNIST = PROTOCOL.replace(
    dataset="mnist",
    partition="shards_in_order:per_client=2",
    model="twonn_superfed",
)
CIFAR10 = PROTOCOL.replace(
    dataset="cifar10:size=28",
    partition="shards_in_order:per_client=2",
    model="twocnn_superfed",
)


class Method(NamedTuple):
    """A row of the tables."""

    algorithm: str
    hyper: Mapping[str, Any] = NOTHING
    evaluated: tuple[str, str] = ("personal", "")  # (model, lambda) behind the number
    settings: Mapping[str, Any] = NOTHING  # in place of the protocol's
    rate: float = 1.0  # its learning rate, as a multiple of the protocol's


METHODS = {
    "FedAvg": Method(form("fedavg_code"), evaluated=("server", "")),
    "FedProx": Method(form("fedprox_code"), {"mu": 0.01}, ("server", "")),
    "SCAFFOLD": Method(
        form("scaffold_code"),
        evaluated=("server", ""),
        settings={"momentum": 0.0, "weight_decay": 0.0},
        rate=10.0,
    ),
    "LG-FedAvg": Method("lg_fedavg"),  # its server has no biases
    "FedPer": Method(form("fedper_code")),
    "APFL": Method(form("apfl_code"), {"alpha": 0.25}),
    "pFedMe": Method(form("pfedme_code"), {"lam": 15.0}, ("server", "")),
    "Ditto": Method(form("ditto_code"), {"lam": 1.0, "personal_epochs": 5}),
    "FedRep": Method(form("fedrep_code"), {"head_epochs": 10}, settings={"epochs": 5}),
    "SuPerFed-MM": Method(
        form("superfed_code"), {"mixing": "model", "mu": 0.01, "nu": 1.0}, ORACLE
    ),
    "SuPerFed-LM": Method(
        form("superfed_code"), {"mixing": "layer", "mu": 0.01, "nu": 2.0}, ORACLE
    ),
}


class Column(NamedTuple):
    """One problem of a table."""

    name: str  # of its folder and in the table
    published: dict[str, str]  # which rows of the published numbers are its own
    experiment: Experiment  # at paper scale
    small: dict[str, Any]  # settings of the small scale
    hyper: Mapping[str, Mapping[str, Any]] = NOTHING  # tuned to it, by method
    methods: Sequence[str] = tuple(METHODS)
    misnamed: Sequence[str] = ()  # methods whose published number is another method's
    alone: Mapping[str, Mapping[str, Any]] = NOTHING  # by method, what the authors'
    # commands set for it and no other: used with --authors-settings
    quick: bool = True  # whether it runs at small scale without being named


def experiment_of(
    column: Column, label: str, small: bool, alone: bool = False
) -> Experiment:
    """The experiment behind one cell; `alone` is `Column.alone`."""
    base = column.experiment.replace(**column.alone.get(label, {}) if alone else {})
    base = base.replace(**column.small if small else {})
    return applied(base, label, column.hyper.get(label, {}))


def applied(
    base: Experiment, label: str, hyper: Mapping[str, Any] = NOTHING
) -> Experiment:
    """The problem `base` by the method of this row."""
    return by_method(base, METHODS[label], hyper).replace(label=label)


def by_method(
    base: Experiment, method: Method, hyper: Mapping[str, Any] = NOTHING
) -> Experiment:
    """The problem `base` by this method."""
    return base.replace(
        algorithm=Component(method.algorithm, {**method.hyper, **hyper}),
        lr=base.lr * method.rate,
        **method.settings,
    )


class Asked(NamedTuple):
    """What of a table is wanted, and how."""

    scale: str  # "small" or "paper"
    seeds: Sequence[int]
    columns: Sequence[str]  # their names
    only: Sequence[str]  # methods
    rounds: int | None  # None for the scale's
    dataset: str | None  # None for the columns' own
    authors_settings: bool
    table: bool  # of what is finished; nothing is run

    @property
    def suffix(self) -> str:
        """What tells its folder from those of other scales and settings."""
        parts = [self.scale]
        if self.rounds:
            parts.append(f"{self.rounds}-rounds")
        if self.dataset:
            parts.append(re.sub(r"[^\w.=,-]+", "_", self.dataset))
        if self.authors_settings:
            parts.append("authors-settings")
        return "-".join(parts)


def main(
    doc: str,
    folder: str,
    problems: Sequence[Column],
    metrics: Mapping[str, str] = ACCURACY,
) -> list[Cell]:
    """The cells of a table of these problems, as the command line asks for it.

    `doc` is what its help begins with, `folder` the beginning of the default one.
    `metrics` names what is measured, and its name among the published numbers.
    """
    names = tuple(column.name for column in problems)
    quick = tuple(column.name for column in problems if column.quick)
    labels = tuple(dict.fromkeys(label for c in problems for label in c.methods))
    default_columns = f"By default all, and at small scale {', '.join(quick)}."

    def table_of(
        scale: Literal["small", "paper"] = "small",
        seeds: script.Seeds = (0, 1, 2),
        columns: Annotated[
            tuple[Literal[names], ...], arg(help=default_columns, metavar="COLUMN ...")
        ] = (),
        only: Annotated[
            tuple[Literal[labels], ...],
            arg(help="By default all.", metavar="METHOD ..."),
        ] = (),
        rounds: script.Rounds = None,
        dataset: Annotated[
            str | None, arg(help="In place of the columns' own.")
        ] = None,
        authors_settings: Annotated[
            bool,
            arg(help="What the authors' commands set for one method alone (Table 2)."),
        ] = False,
        table: Annotated[
            bool, arg(help="Of what is finished of --columns and --only; runs nothing.")
        ] = False,
        out: Annotated[
            str | None, arg(help=f"Else {folder}-SCALE and what of these is given.")
        ] = None,
    ) -> list[Cell]:
        every_column = table or scale == "paper"
        asked = Asked(
            scale=scale,
            seeds=seeds,
            columns=columns or (names if every_column else quick),
            only=only or labels,
            rounds=rounds,
            dataset=dataset,
            authors_settings=authors_settings,
            table=table,
        )
        path = Path(out or f"{folder}-{asked.suffix}")
        return make_table(asked, problems, metrics, path)

    table_of.__doc__ = doc.splitlines()[0]
    return script.run(table_of)


def make_table(
    asked: Asked, columns: Sequence[Column], metrics: Mapping[str, str], out: Path
) -> list[Cell]:
    """Runs what is not finished of what was asked for, and writes the table.

    The table has all that is finished in the folder; with --table, of what was asked.
    Returns the table's cells. Exit code 1 if a cell was left out, which the last line
    names, or nothing is finished.
    """
    use_compile_cache()
    every = [(column, label) for column in columns for label in column.methods]
    wanted = [
        (c, label)
        for c, label in every
        if c.name in asked.columns and label in asked.only
    ]
    left = [(c.name, label) for c, label in wanted if not fill(asked, c, label, out)]
    finished: list[Cell] = []
    for column, label in wanted if asked.table else every:
        finished += measured(out / column.name / label, column, label, metrics)
    wrong = [] if finished else [f"no run is finished in {out}"]
    if finished:
        print(write(out, finished), flush=True)
    if left:
        wrong.append(f"left out: {'; '.join(map(', '.join, left))}")
    if wrong:
        raise SystemExit("\n".join(wrong))
    return finished


def fill(asked: Asked, column: Column, label: str, out: Path) -> bool:
    """Runs one cell's sweep over seeds, or what is left of it; False if it cannot."""
    if asked.table:
        return True
    small = asked.scale == "small"
    experiment = experiment_of(column, label, small, asked.authors_settings)
    named = {"rounds": asked.rounds, "dataset": asked.dataset}
    named = {name: value for name, value in named.items() if value is not None}
    print(f"{column.name}, {label}", file=sys.stderr, flush=True)
    folder = out / column.name / label
    try:
        experiment = experiment.replace(**named)
        results = sweep(experiment, {"seed": asked.seeds}, out=folder, quiet=False)
    except errors.KINDS as error:
        if errors.shows_traceback():
            raise
        print(f"not run: {error}", file=sys.stderr, flush=True)
        return False
    greatest.keep(folder, results)
    return True


def rows_of(experiment: Experiment) -> str:
    """The data set with its options, but for where it lies."""
    choice = experiment.dataset
    kept = {k: v for k, v in choice.args if k not in ("path", "data_dir")}
    return str(Component(choice.name, kept))


def measured(
    place: Path, column: Column, label: str, metrics: Mapping[str, str]
) -> list[Cell]:
    """One row of a column's tables, of what is finished."""
    if not (place / "sweep.csv").exists():
        return []
    rows = swept.read(place).to_dict("records") + greatest.read(place)
    found = []
    ran = config.from_dict(read_json(place / "sweep.json")["experiment"])
    part = took_part(ran, sorted({int(row["seed"]) for row in rows}))
    sets = {"data": rows_of(ran), "published_on": rows_of(column.experiment)}
    for metric, published_as in metrics.items():
        wanted = {**column.published, "metric": published_as}
        told = published(PUBLISHED, wanted).get(label, (np.nan, np.nan))
        told = (np.nan, np.nan) if label in column.misnamed else told
        evaluated = METHODS[label].evaluated
        if evaluated == ORACLE and metric != "accuracy":  # of which both are the same
            evaluated = GREATEST
        made = cells(rows, column.name, label, metric, evaluated, told)
        found += [cell._replace(**part._asdict(), **sets) for cell in made]
    return found
