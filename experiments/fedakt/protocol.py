"""The protocol, methods and tables that the scripts of the FedAKT paper share.

Liu et al., JSA 159 (2025), https://doi.org/10.1016/j.sysarc.2025.103338. All of 20
clients take part in 100 rounds of one epoch, with batches of 10 and SGD at 0.01.
Training and test examples are merged and partitioned as in PFLlib, and a quarter of
each client's examples are its test set. We could not read the paper's accuracies, only
its margins, which are shown beside ours.

The widths of the five CNNs are assumed (`pfljax.models.heterogeneous`). The platform of
the paper differs from pfljax as follows:

  batches     It drops the last short batch of an epoch. Here it is trained on.
  split       It continues the random stream of the partition. Here the run's seed draws
              the split, the weights and the batches. Only the partition is repeated.
  examples    They are in CIFAR's own order, here in that of TFDS. Each client has as
              many examples of each class as there, but not the same ones.
  FedGen      It draws the generator's labels by global counts, trains the generator by
              the mean logits of all heads, and uses its terms at full weight in all
              rounds. Here this is as in the authors' code.
  FML         Both models descend the sum of both losses, and KL is a mean over classes
              too. Here each descends its own loss, with the other as a constant.
  FedProto    lam weights a mean of squares, here the distance of class means.
  FedDistill  There is one table for all clients, here the mean of the others' tables.
  FedKD       It descends the sum, as FML. It sends a low rank of the parameters, and
              here of their change.
  gradients   Those of FML and FedKD are clipped to a norm of 10. Here they are not.

The small scale has every tenth example, narrow models of the same kind, ten rounds, and
five times the rate, so that ten rounds learn something.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from tyro.conf import arg

from pfljax.core.components import Component
from pfljax.models import model_groups as groups
from pfljax.runs.settings import Experiment

# What the replications share lies beside the papers' folders, in no package.
sys.path.append(str(Path(__file__).parents[1]))
from shared import best_round, script
from shared.best_round import Cell, Row

RESULTS = Path(__file__).parent / "results"
NOTHING: Mapping[str, Any] = MappingProxyType({})
PROTOCOL = Experiment(
    dataset="cifar10",
    clients=20,
    cohort=20,
    rounds=100,
    epochs=1,
    batch_size=10,
    lr=0.01,
    test=0.25,
    validation=0.0,
    examples="all",
    eval_every=1,
)
SMALL: dict[str, Any] = {"rounds": 10, "lr": 0.05, "eval_every": 2, "devices": 1}
# A twelfth of the paper's widths or so: CNN-4 stays the smallest.
NARROW_FEATURES = 64
NARROW = (
    ((8, 16), 64),
    ((4, 16), 48),
    ((8, 8), 40),
    ((4, 4), 24),
    ((4, 8), 32),
)
NARROW_RESNET = f"stem=8,features={NARROW_FEATURES}"
EQUAL_HIDDEN = {False: 500, True: 32}  # FC2 where heads are shared, by small scale
CNN_HYPER = {"lam": 3.0}
TINY_HYPER = {"lam": 0.5}
CLASSES = {"cifar10": 2, "cifar100": 10, "cifar100_20k": 10, "tiny_imagenet": 20}


class Method(NamedTuple):
    """A row of the tables."""

    algorithm: str
    hyper: Mapping[str, Any] = NOTHING
    equal_heads: bool = False  # FC2 is alike in all models


METHODS: dict[str, Method] = {
    "Standalone": Method("local"),
    "LG-FedAvg": Method("lg_fedavg", equal_heads=True),
    "FedGen": Method(
        "fedgen",
        {
            "alpha": 1.0,
            "beta": 0.0,
            "hidden": 512,
            "generator_lr": 0.1,
            "generator_steps": 100,
        },
        equal_heads=True,
    ),
    "FML": Method("fml", {"alpha": 0.5, "beta": 0.5}),
    "FedKD": Method("fedkd", {"energy_start": 0.95, "energy_end": 0.95}),
    "FedDistill": Method("feddistill", {"lam": 1.0}),
    "FedProto": Method("fedproto", {"lam": 0.1}),
    "FedAKT": Method("fedakt", CNN_HYPER),
}
# Not in the paper: two later methods of the same kind.
LATER: dict[str, Method] = {
    "FedTGP": Method("fedtgp", {"lam": 0.1, "tau": 100.0, "server_steps": 100}),
    "FedGH": Method("fedgh", equal_heads=True),
}
ABLATION: dict[str, Method] = {
    "FedAKT": METHODS["FedAKT"],
    "FMD only": Method("fedakt", {**CNN_HYPER, "hdu": False}),
    "HDU only": Method("fedakt", {"lam": 0.0}),
    "Standalone": METHODS["Standalone"],
}
EVERY = {**METHODS, **LATER, **ABLATION}


class Column(NamedTuple):
    """One problem of a table."""

    name: str
    experiment: Experiment  # at paper scale, without models
    small: Mapping[str, Any]  # settings of the small scale
    margin: float | None = None  # published, of FedAKT over the best baseline
    group: str = "htcnn_akt"
    hyper: Mapping[str, Mapping[str, Any]] = NOTHING  # in place of the methods'
    quick: bool = True  # whether it runs at small scale without being named


def partition_of(dataset: str, skew: str | float) -> str:
    """PFLlib's partition of a data set: "pathological", or the alpha of a Dirichlet."""
    if skew == "pathological":
        return f"pfllib_pathological:per_client={CLASSES[dataset]}"
    return f"pfllib_dirichlet:alpha={skew}"


def column(
    dataset: str,
    skew: str | float,
    margin: float | None = None,
    *,
    group: str = "htcnn_akt",
    quick: bool = False,
    **settings: Any,
) -> Column:
    """A column of the paper's protocol; `settings` in place of its own."""
    of_skew = skew if skew == "pathological" else f"Dir({skew})"
    experiment = PROTOCOL.replace(
        dataset=dataset,
        partition=partition_of(dataset, skew),
        **settings,
    )
    tiny = dataset == "tiny_imagenet"
    return Column(
        name=f"{dataset} {of_skew}",
        experiment=experiment.replace(examples="train") if tiny else experiment,
        small={**SMALL, "dataset": f"{dataset}:every=10"},
        margin=margin,
        group=group,
        hyper={"FedAKT": TINY_HYPER} if tiny else NOTHING,
        quick=quick,
    )


def models(group: str, equal_heads: bool, small: bool) -> list[str]:
    """The models of the group; client i has number i mod their number.

    At small scale these are narrow CNNs, of the ResNets narrow ones. The heads of
    groups other than `htcnn_akt` are one layer, and alike.
    """
    if small and group == "htresnet":
        return [f"{name}:{NARROW_RESNET}" for name in groups.GROUPS[group]]
    if not small:
        cnns = group == "htcnn_akt"
        hidden = f",hidden={EQUAL_HIDDEN[False]}" if equal_heads and cnns else ""
        width = groups.FEATURES[group]
        return [f"{name}:features={width}{hidden}" for name in groups.GROUPS[group]]
    return [
        narrow(channels, EQUAL_HIDDEN[True] if equal_heads else hidden)
        for channels, hidden in NARROW
    ]


def narrow(channels: tuple[int, int], hidden: int) -> str:
    """A narrow CNN, whose head is FC2 and FC3."""
    first, second = channels
    widths = f"({NARROW_FEATURES},{hidden})"
    return f"htcnn:channels=({first},{second}),hidden={widths},split=1"


def experiment_of(
    problem: Column, label: str, small: bool, method: Method | None = None
) -> Experiment:
    """The experiment behind one cell."""
    method = method or EVERY[label]
    hyper = {**method.hyper, **problem.hyper.get(label, {})}
    experiment = problem.experiment.replace(
        algorithm=Component(method.algorithm, hyper),
        models=models(problem.group, method.equal_heads, small),
        label=label,
    )
    return experiment.replace(**problem.small) if small else experiment


class Table(NamedTuple):
    """How a table is written, and what stands beside its numbers."""

    name: str
    results: Path = RESULTS
    published: best_round.Published = lambda column, method: None
    note: Callable[[Column, Sequence[Row]], str] | None = None  # None for `margins`
    runs: str = "fedakt"  # beginning of the folder of its runs at paper scale


def main(
    doc: str,
    name: str | Table,
    problems: Sequence[Column],
    methods: Mapping[str, Method] = METHODS,
    later: Mapping[str, Method] = NOTHING,
) -> list[Row]:
    """The rows of a table, as the command line asks for it; `later` only if named."""
    table = Table(name) if isinstance(name, str) else name
    names = tuple(problem.name for problem in problems)
    labels = (*methods, *later)
    quick = tuple(problem.name for problem in problems if problem.quick) or names

    def table_of(
        scale: Literal["small", "paper"] = "small",
        seeds: script.Seeds = (0, 1, 2),
        columns: Annotated[tuple[Literal[names], ...], arg(metavar="COLUMN ...")] = (),
        only: Annotated[tuple[Literal[labels], ...], arg(metavar="METHOD ...")] = (),
        rounds: script.Rounds = None,
        out: script.Out = None,
        results: script.Results = None,
    ) -> list[Row]:
        small = scale == "small"
        chosen = columns or (quick if small else names)
        of_table = [problem for problem in problems if problem.name in chosen]
        cells = cells_of(of_table, only or tuple(methods), small, rounds)
        # Tables share their runs: Table 7's first and last case are of Table 3.
        begin = "fedakt" if small else table.runs
        folder = Path(out or f"runs/{begin}-{scale}" + (f"-{rounds}" if rounds else ""))
        say = table.note or margins
        by_name = {problem.name: problem for problem in of_table}
        place = Path(results) if results else table.results
        return best_round.tabulate(
            cells,
            seeds,
            folder,
            place / f"{table.name}_{scale}",
            lambda column, rows: say(by_name[column], rows),
            table.published,
        )

    table_of.__doc__ = doc.splitlines()[0]
    return script.run(table_of)


def cells_of(
    problems: Sequence[Column], labels: Sequence[str], small: bool, rounds: int | None
) -> list[Cell]:
    """What is to run."""
    cells = []
    for problem in problems:
        for label in labels:
            experiment = experiment_of(problem, label, small)
            if rounds:
                experiment = experiment.replace(rounds=rounds)
            cells.append(Cell(problem.name, label, experiment))
    return cells


def margins(problem: Column, rows: Sequence[Row]) -> str:
    """FedAKT's published margin over the paper's methods beside the measured one."""
    own = [r for r in rows if r.column == problem.name and r.method in METHODS]
    measured = best_round.margin(own, "FedAKT")
    if measured is None:
        return ""
    theirs = "not published" if problem.margin is None else f"{problem.margin:+.2f}"
    return f"FedAKT minus the best other method: {measured:+.2f}; published: {theirs}"
