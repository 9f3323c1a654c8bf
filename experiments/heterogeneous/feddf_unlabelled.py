"""FedDF: the examples on which the server distils, and the number of models (NeurIPS
2020).

Lin, Kong, Stich, Jaggi, https://arxiv.org/abs/2006.07242.

    pfljax prepare cifar10; pfljax prepare cifar100_20k --raw FOLDER
    python experiments/heterogeneous/feddf_unlabelled.py --scale small
    python experiments/heterogeneous/feddf_unlabelled.py --scale paper

CIFAR-10 is divided among 20 clients, of which 8 take part in a round. The server's
examples are those of CIFAR-100, as in the paper; examples of CIFAR-10 that no client
has; or noise of independent pixels. Without steps at the server FedDF is FedAvg,
separately for each architecture. The labels of the server's examples are never read.
The fused model is evaluated on a quarter of every client's examples; the paper uses the
official test examples.

The paper finds that distillation leads FedAvg, that examples of another data set do
nearly as well as examples of the same one, and that models of several architectures
gain from each other. Its numbers were not read again.

The small scale has every tenth example, the first narrow CNNs of `fedakt/protocol.py`,
eight rounds of twenty epochs, and 100 steps at the server on 32 of its 1,000 examples.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from tgp import HERE, best_round, models

from pfljax import data
from pfljax.core.types import ClientData, Examples
from pfljax.data import Arrays, Federation
from pfljax.runs.settings import Experiment

ALPHAS = (1.0, 0.1)
SERVER_ROWS = ("CIFAR-100", "CIFAR-10", "noise")
PAPER = Experiment(
    algorithm="feddf:server_steps=10000",
    cohort=8,
    rounds=100,
    epochs=40,
    batch_size=64,
    lr=0.1,
    model="htresnet8",
    eval_every=1,
)
SMALL: dict[str, Any] = {
    "algorithm": "feddf:server_steps=100,server_batch_size=32",
    "rounds": 8,
    "epochs": 20,  # with 5, teachers and students stay at chance
    "batch_size": 10,
    "lr": 0.05,
    "eval_every": 2,
    "devices": 1,
}
RESNETS = ("htresnet6", "htresnet8", "htresnet10")  # assumed, of the paper's kind
CLIENTS = 20
SET_ASIDE = 0.2  # share of CIFAR-10 that no client has, in every column


def federation(every: int, alpha: float, rows: str, seed: int) -> Federation:
    """Clients of CIFAR-10, and a server with as many rows of this kind."""
    dealt = data.federate(
        data.load("cifar10", every=every),
        f"dirichlet_over_classes_by_client:alpha={alpha}",
        num_clients=CLIENTS,
        seed=seed,
        test=0.25,
        validation=0.0,
        public=SET_ASIDE,
    )
    of_same = dealt.public
    assert of_same is not None
    count = int(of_same.size)
    if rows == "CIFAR-100":
        x = some_rows(data.load("cifar100_20k"), count, seed)
    elif rows == "noise":
        x = np.random.default_rng(seed).integers(0, 256, of_same.examples.x.shape)
    else:
        x = np.asarray(of_same.examples.x)
    # FedDF reads no label: there is none to read.
    pool: Any = Examples(x.astype(np.uint8), np.zeros(count, np.int32))
    return replace(dealt, public=ClientData(pool, of_same.offset, of_same.size))


def some_rows(arrays: Arrays, count: int, seed: int) -> np.ndarray:
    """x of `count` rows at random."""
    return arrays.x[np.random.default_rng(seed).permutation(len(arrays.x))[:count]]


def cells(small: bool, rounds: int | None) -> list[best_round.Cell]:
    """What is to run: FedAvg, and FedDF by the server's rows, in each column."""
    base = PAPER.replace(**SMALL) if small else PAPER
    if rounds:
        base = base.replace(rounds=rounds)
    narrow = models("htcnn_akt", equal_heads=False, small=True)
    names = narrow[: len(RESNETS)] if small else RESNETS
    kinds: dict[str, dict[str, Any]] = {
        "one model": {"model": names[0]},
        f"{len(names)} models": {"model": "auto", "models": list(names)},
    }
    found = []
    for alpha in ALPHAS:
        for kind, settings in kinds.items():
            of_kind = base.replace(**settings)
            fedavg = of_kind.replace(algorithm="feddf:server_steps=0")
            methods = {"FedAvg": (fedavg, "noise")}
            methods |= {f"FedDF, {rows}": (of_kind, rows) for rows in SERVER_ROWS}
            for label, (experiment, rows) in methods.items():
                made = partial(federation, 10 if small else 1, alpha, rows)
                cell = best_round.Cell(f"Dir({alpha}), {kind}", label, experiment, made)
                found.append(cell)
    return found


def gain(column: str, rows: Sequence[best_round.Row]) -> str:
    """What FedDF gains over FedAvg in the best round."""
    gains = best_round.gains(rows, column, "FedAvg")
    texts = [f"{method} {points:+.2f}" for method, points in gains.items()]
    return f"Gains over FedAvg: {'; '.join(texts)}" if texts else ""


if __name__ == "__main__":
    best_round.command(__doc__, "feddf_unlabelled", cells, gain, HERE / "results")
