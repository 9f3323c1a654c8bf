"""FedMD on CIFAR: ten parties with few examples, and a public data set (2019).

Li, Wang, https://arxiv.org/abs/1910.03581: its two tasks on CIFAR.

    pfljax prepare cifar10; pfljax prepare cifar100_20k --raw FOLDER
    python experiments/heterogeneous/fedmd_cifar.py --scale small
    python experiments/heterogeneous/fedmd_cifar.py --scale paper

The server has CIFAR-10. The parties have examples of six classes of CIFAR-100, and
their models distinguish all sixteen classes. "iid": a party has 3 examples of each of
six classes. "non-iid": a party has 20 examples of each of six superclasses, all from
one of its subclasses, and is tested on all subclasses. Test examples are the official
ones. There are three cases:

    alone   trains on the public examples, and then on its own
    FedMD   then also collaborates, on about 5,000 public examples in a round
    pooled  trains as alone, but each party has the examples of all parties

According to the abstract, FedMD gains 20 points on average over what is possible
without collaboration, and is a few points below pooled.

Classes, channels, rounds and epochs are those of the authors' scripts. The other
differences are: training before the first round does not stop early, and uses the
batches of the rounds; there are group normalisation and pools of 2x2, and no dropout;
parties have no examples in common; examples are from the first 20,000 + 5,000 of
CIFAR-100. The small scale has a twentieth of the public examples, 500 in a round,
narrow CNNs of three kinds, ten rounds, and two epochs on all public examples instead of
twenty.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from tgp import HERE, best_round

from pfljax import data
from pfljax.core.components import Component
from pfljax.core.types import ClientData, Examples
from pfljax.data import Arrays, Federation
from pfljax.runs.settings import Experiment

PARTIES = 10
TRAIN, TEST = 0, 1  # official splits
FIRST = 10  # the label of the first private class, behind those of CIFAR-10
CHANNELS: tuple[tuple[int, ...], ...] = (
    (128, 256), (128, 384), (128, 512), (256, 256), (256, 512),
    (64, 128, 256), (64, 128, 192), (128, 192, 256), (128, 128, 128), (128, 128, 192),
)  # fmt: skip
SMALL_ROUNDS = 10
NARROW = ((16, 32), (16, 24), (8, 16, 32))


class Problem(NamedTuple):
    """One of the two tasks."""

    labels: str  # of CIFAR-100: "fine" or "coarse"
    classes: tuple[int, ...]
    rows: int  # of each class, at a party
    rounds: int
    own_epochs: int  # on its own rows, in each round
    batch_size: int
    digest_batch_size: int


PROBLEMS = {
    "iid": Problem("fine", (0, 2, 20, 63, 71, 82), 3, 20, 4, 5, 256),
    "non-iid": Problem("coarse", (0, 1, 7, 9, 12, 18), 20, 13, 10, 10, 128),
}


def federation(problem: Problem, every: int, pooled: bool, seed: int) -> Federation:
    """The ten parties, and a server that has each `every`-th row of CIFAR-10."""
    private = data.load("cifar100_20k", labels=problem.labels)
    parties = rows_of_parties(problem, private, seed)
    if pooled:
        parties = [np.concatenate(parties)] * PARTIES
    tested = np.flatnonzero(
        (private.official == TEST) & np.isin(private.y, problem.classes)
    )
    rows = np.concatenate([*parties, tested])
    sizes = [len(own) for own in parties]
    # Test rows are nobody's: all parties are evaluated with all of them.
    owner = np.repeat([*range(PARTIES), 0], [*sizes, len(tested)])
    public = data.load("cifar10", every=every)
    dealt = data.federate(
        data.from_arrays(
            private.x[rows],
            FIRST + np.searchsorted(problem.classes, private.y[rows]),
            client=owner,
            official=private.official[rows],
            num_classes=FIRST + len(problem.classes),
            shift=private.shift,
            scale=private.scale,
        ),
        "natural",
        num_clients=None,
        seed=seed,
        validation=0.0,
        test_from="official",
    )
    of_train = public.official == TRAIN
    pool: Any = Examples(public.x[of_train], public.y[of_train])
    offset: Any = np.int32(0)
    size: Any = np.int32(of_train.sum())
    return replace(dealt, public=ClientData(pool, offset, size))


def rows_of_parties(problem: Problem, private: Arrays, seed: int) -> list[np.ndarray]:
    """Row numbers of each party, `rows` of each class, no row twice."""
    draws = np.random.default_rng(seed)
    fine = data.load("cifar100_20k").y
    of_party: list[list[np.ndarray]] = [[] for _ in range(PARTIES)]
    for label in problem.classes:
        mine = np.flatnonzero((private.y == label) & (private.official == TRAIN))
        mine = draws.permutation(mine)
        kinds = np.unique(fine[mine])
        for party, rows in enumerate(of_party):
            # Of a superclass a party has one subclass; a fine class has one alone.
            of_kind = mine[fine[mine] == kinds[party % len(kinds)]]
            first = party // len(kinds) * problem.rows
            rows.append(of_kind[first : first + problem.rows])
    return [np.concatenate(rows) for rows in of_party]


def cells(small: bool, rounds: int | None) -> list[best_round.Cell]:
    """What is to run: three cases of each task."""
    names = [
        f"gn_cnn:channels=({','.join(map(str, channels))})"
        for channels in (NARROW if small else CHANNELS)
    ]
    every = 20 if small else 1
    found = []
    for name, problem in PROBLEMS.items():
        hyper = {
            "subset": 500 if small else 5000,
            "public_batch_size": problem.digest_batch_size,
            "pretrain_epochs": 2 if small else 20,
            "pretrain_own_epochs": 25,
        }
        base = Experiment(
            algorithm=Component("fedmd", hyper),
            models=names,
            cohort=PARTIES,
            rounds=rounds or (SMALL_ROUNDS if small else problem.rounds),
            epochs=problem.own_epochs,
            batch_size=problem.batch_size,
            lr=0.001,
            optimizer="adam",
            eval_every=1,
            devices=1 if small else None,
        )
        alone = base.replace(
            algorithm=Component("fedmd", {**hyper, "digest_epochs": 0})
        )
        cases = {
            "alone": (alone, False),
            "FedMD": (base, False),
            "pooled": (alone, True),
        }
        for label, (experiment, pooled) in cases.items():
            made = partial(federation, problem, every, pooled)
            found.append(best_round.Cell(name, label, experiment, made))
    return found


def gain(column: str, rows: Sequence[best_round.Row]) -> str:
    """What collaboration and pooling gain."""
    gains = best_round.gains(rows, column, "alone")
    texts = [f"{case} {points:+.2f}" for case, points in gains.items()]
    return f"Gains over alone (FedMD published: about +20): {'; '.join(texts)}"


if __name__ == "__main__":
    best_round.command(__doc__, "fedmd_cifar", cells, gain, HERE / "results")
