"""The clients, methods and tables that the scripts of the pFedVEM paper share.

Zhu, Ma, Blaschko, CVPR 2023, https://arxiv.org/abs/2305.12557. Settings are those of
the authors' configurations: 100 rounds, SGD with momentum 0.9, and five epochs of the
body; the head takes full steps. There all clients train in every round, and a tenth of
them, drawn at random, are averaged.

We could not read the paper's tables and its list of baselines. The problem of each
table and the methods beside pFedVEM are our choice. We know four accuracies from the
index of a third party. They are unverified, and the number of clients is not given.

Here a tenth of the clients is drawn without replacement, and the
others do not train. All heads begin as the model's own. Examples of CIFAR-100 are the
first 20,000 + 5,000. The models are the library's small CNNs, not the paper's.

The small scale has fewer examples, perceptrons with one narrow layer, a fifth of the
clients in each of 15 rounds, two epochs of batches of 20, greater rates, and 40 steps
of a head in a round. The heads' posteriors begin with standard deviations of 0.3
instead of 1, because a client takes part three times instead of in 100 rounds.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from pfljax import data
from pfljax.core.components import Component
from pfljax.data import Arrays, Federation
from pfljax.data.partitions.base import Partition, from_owner
from pfljax.runs.settings import Experiment

HERE = Path(__file__).parent
RESULTS = HERE / "results"
# What the replications share lies beside the papers' folders, in no package.
sys.path.append(str(HERE.parent))
from shared import best_round as best_round  # noqa: E402
from shared import script as script  # noqa: E402
from shared.published import std_over_seeds as std_over_seeds  # noqa: E402
from shared.published import with_std as with_std  # noqa: E402
from shared.swept import Result as Result  # noqa: E402
from shared.swept import Sweep as Sweep  # noqa: E402
from shared.swept import sweep as sweep  # noqa: E402

BY_ROWS = f"{HERE}/methods/pfedvem_by_rows.py:pfedvem_by_rows"
TRAIN, TEST = 0, 1  # official splits
CLIENTS = (50, 100, 200)
NOTHING: Mapping[str, Any] = MappingProxyType({})
PAPER = Experiment(
    rounds=100,
    epochs=5,
    batch_size=10,
    momentum=0.9,
    lr=0.001,
    eval_every=5,
)
SMALL: dict[str, Any] = {
    "rounds": 15,
    "epochs": 2,
    "batch_size": 20,
    "lr": 0.01,
    "eval_every": 5,
    "devices": 1,
}
# With few rounds, posteriors need more steps in each, and less noise to begin with.
SMALL_HEAD_STEPS = 40
SMALL_SCALE = 0.3
SMALL_HYPER = {"pfedbayes": {"posterior_lr": 0.01}}
# Of the third party's index; it says no number of clients.
UNVERIFIED = {
    "fashion_mnist": {"pFedVEM": 91.8, "pFedBayes": 91.9},
    "cifar10": {"pFedVEM": 73.2, "pFedBayes": 71.4},
}


class Method(NamedTuple):
    """A row of the tables."""

    algorithm: str
    hyper: Mapping[str, Any] = NOTHING


METHODS: dict[str, Method] = {
    "Local": Method("local"),
    "FedAvg": Method("fedavg"),
    "FedPer": Method("fedper"),
    "Ditto": Method("ditto"),
    "pFedBayes": Method("pfedbayes"),
    "pFedVEM by rows": Method(BY_ROWS),
    "pFedVEM": Method("pfedvem"),
}
VARIATIONAL = ("pfedvem", BY_ROWS)


class Problem(NamedTuple):
    """A data set with its model, at both scales."""

    dataset: str
    options: Mapping[str, Any]  # of the data set, at small scale
    model: str
    small_model: str
    settings: Mapping[str, Any] = NOTHING  # in place of `PAPER`'s
    head_steps: int = 10


FASHION = Problem("fashion_mnist", {"every": 10}, "twocnn", "mlp:hidden=(32,)")
CIFAR10 = Problem("cifar10", {"every": 10, "size": 16}, "twocnn", "mlp:hidden=(32,)")
CIFAR100 = Problem(
    "cifar100_20k",
    {"every": 2, "size": 16},
    "gn_cnn:channels=(32,64,128)",
    "mlp:hidden=(64,)",
    {"batch_size": 50, "lr": 0.01},
    head_steps=20,
)


def experiment_of(problem: Problem, label: str, clients: int, small: bool) -> Any:
    """The experiment of a method, without its clients' rows."""
    method = METHODS[label]
    hyper = dict(method.hyper)
    if method.algorithm in VARIATIONAL:
        steps = SMALL_HEAD_STEPS if small else problem.head_steps
        hyper |= {"head_steps": steps, "head_lr": 0.001}
        hyper |= {"scale": SMALL_SCALE} if small else {}
    if small:
        hyper |= SMALL_HYPER.get(method.algorithm, {})
    base = PAPER.replace(
        **problem.settings,
        algorithm=Component(method.algorithm, hyper),
        model=problem.small_model if small else problem.model,
        clients=clients,
        cohort=clients // (5 if small else 10),
        label=label,
    )
    return base.replace(**SMALL) if small else base


def rows_of(problem: Problem, small: bool, **more: Any) -> Arrays:
    """The data set, with fewer and smaller rows at small scale."""
    options = problem.options if small else {}
    return data.load(problem.dataset, **options, **more)


def skewed(problem: Problem, clients: int, small: bool, seed: int) -> Federation:
    """Half of the classes each, and as many rows of them as chance cuts.

    Classes are shuffled and halved between a client and the next one. The rows of a
    class are cut at random points into a block for each client that has it. Clients are
    tested on the official rows of their classes.
    """
    arrays = rows_of(problem, small)
    dealt = cut_at_random(arrays, clients, np.random.default_rng(seed))
    return data.federate(
        arrays,
        dealt,
        num_clients=None,
        seed=seed,
        validation=0.0,
        test_from="official_classes",
    )


def cut_at_random(arrays: Arrays, clients: int, draws: Any) -> Partition:
    """The partition of `skewed`; every block has two rows at least."""
    holders: list[list[int]] = [[] for _ in range(arrays.num_classes)]
    half = arrays.num_classes // 2
    for first in range(0, clients, 2):
        shuffled = draws.permutation(arrays.num_classes)
        for place, label in enumerate(shuffled):
            # The last client of an odd number is alone in its pair.
            client = min(first + (place >= half), clients - 1)
            holders[label].append(client)
    owner = np.full(len(arrays.y), -1)
    for label, having in enumerate(holders):
        rows = np.flatnonzero((arrays.y == label) & (arrays.official == TRAIN))
        spare = len(rows) - 2 * len(having)
        cuts = np.sort(draws.integers(0, spare + 1, len(having) - 1))
        sizes = 2 + np.diff([0, *cuts, spare])
        owner[draws.permutation(rows)] = np.repeat(having, sizes)
    return from_owner(owner, clients)


def drifted(problem: Problem, clients: int, small: bool, seed: int) -> Federation:
    """All superclasses as labels, of each one subclass of five.

    The rows of a subclass are shared evenly by the clients that have it; a client is
    tested on the official rows of its own subclasses.
    """
    coarse = rows_of(problem, small, labels="coarse")
    fine = rows_of(problem, small, labels="fine").y
    draws = np.random.default_rng(seed)
    owners: list[np.ndarray] = []
    rows: list[np.ndarray] = []
    for label in range(coarse.num_classes):
        kinds = np.unique(fine[coarse.y == label])
        # Each subclass has as many clients, or one more.
        kind_of = draws.permutation(np.resize(kinds, clients))
        for kind in kinds:
            having = np.flatnonzero(kind_of == kind)
            learnt = draws.permutation(_rows(coarse, fine, kind, TRAIN))
            tested = _rows(coarse, fine, kind, TEST)
            rows += [learnt, np.tile(tested, len(having))]
            owners += [np.resize(having, len(learnt)), np.repeat(having, len(tested))]
    taken = np.concatenate(rows)
    # A test row is there once for each client that it tests.
    of_clients = data.from_arrays(
        coarse.x[taken],
        coarse.y[taken],
        client=np.concatenate(owners),
        official=coarse.official[taken],
        num_classes=coarse.num_classes,
        shift=coarse.shift,
        scale=coarse.scale,
    )
    return data.federate(
        of_clients,
        "natural",
        num_clients=None,
        seed=seed,
        validation=0.0,
    )


def _rows(arrays: Arrays, fine: np.ndarray, kind: int, official: int) -> np.ndarray:
    """Row numbers of a subclass in an official split."""
    return np.flatnonzero((fine == kind) & (arrays.official == official))
