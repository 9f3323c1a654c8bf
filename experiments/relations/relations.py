"""Learnt relations of clients, compared with known clusters.

    python experiments/relations/relations.py --scale small
    pfljax prepare mnist; python experiments/relations/relations.py --scale paper

All clients have the same kind of digits, and number them in four ways: a client of
cluster g calls the digit d (d + 3 g) mod 10. Models of one cluster help each other, and
models of two clusters contradict each other. The methods learn which clients are
related:

    FedAMP    xi, the weights by which the server mixes a model for each client
    FedFomo   P, how much each client gained from each other over the rounds
    MOCHA     Sigma, as correlations of linear support vector machines

A matrix is made symmetric, and average linkage puts the clients into four clusters. The
adjusted Rand index compares these with the true clusters: 1 means equal clusters, and 0
is the mean of random ones. The methods do not know the clusters or their number. The
papers of FedAMP and FedFomo show such figures for other data, without numbers. Options
were chosen by hand at the small scale.

The small scale is a linear model of the 8 x 8 digits with 20 clients and 30 rounds of
one epoch. The paper scale is MNIST with 100 clients and 100 rounds. All clients take
part.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from finished import HERE, Finished, accuracy, finished, mean_and_std, script, write
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from pfljax import data
from pfljax.algorithms import _affinity as affinity
from pfljax.algorithms.multi_task import mocha
from pfljax.algorithms.multi_task.fedamp import attract, median
from pfljax.core import tree
from pfljax.core.components import Component
from pfljax.data import Federation
from pfljax.report.heat_maps import heat_map
from pfljax.report.style import new_figure
from pfljax.runs.settings import Experiment
from pfljax.runtime.devices import use_compile_cache

CLUSTERS = 4
TURN = 3  # classes by which the numbering of the next cluster is turned
FEDAMP = {"alpha": 1.0, "sigma": 0.1, "lam": 0.1, "relative": True}
FOMO = {"candidates": 5, "explore": 0.2}
MOCHA = {"lam": 1e-4, "period": 10}
SMALL: dict[str, Any] = {"clients": 20, "dataset": "digits"}
PAPER: dict[str, Any] = {"clients": 100, "dataset": "mnist"}
BASE = Experiment(
    model="logistic",
    epochs=1,
    batch_size=10,
    lr=0.1,
    devices=1,
)


class Case(NamedTuple):
    """A method, and how its matrix is read off the server: f64[C, C], or None."""

    method: str
    hyper: dict[str, Any]
    matrix: Callable[[Any], np.ndarray] | None = None


class Row(NamedTuple):
    """What a method found; lists are by seed."""

    method: str
    rand: list[float]  # adjusted Rand index; none of a method without a matrix
    within: list[float]  # mean affinity of clients of one cluster
    between: list[float]  # and of two
    personal: list[float]  # percent


def weights_of_fedamp(server: Any) -> np.ndarray:
    """xi_kj, the weights of the others in the model that each client would be sent."""
    centre = affinity.mean(server)

    def row(k: Any) -> Any:
        own = tree.take_or(server.params, k)
        square = affinity.square_distances(server.params, own, centre)
        others = affinity.others(server, k)
        width = FEDAMP["sigma"] * median(square, others)
        return attract(square, others, FEDAMP["alpha"], width)

    return np.asarray(affinity.matrix(row, len(server.heard)), np.float64)


def gains_of_fedfomo(server: Any) -> np.ndarray:
    """P."""
    return np.asarray(server.gains, np.float64)


def correlations_of_mocha(server: Any) -> np.ndarray:
    """Sigma, of diagonal 1."""
    return np.asarray(mocha.relations(server), np.float64)


CASES = {
    "local training": Case("local", {}),
    "FedAvg": Case("fedavg", {}),
    "FedAMP": Case("fedamp", FEDAMP, weights_of_fedamp),
    "FedFomo": Case("fedfomo", FOMO, gains_of_fedfomo),
    "MOCHA": Case("mocha", MOCHA, correlations_of_mocha),
}


def cluster_of(clients: int) -> np.ndarray:
    """The true cluster of each client, i[C], in order."""
    return np.arange(clients) * CLUSTERS // clients


def federation(dataset: str, clients: int, seed: int) -> Federation:
    """Digits dealt at random to clients that number them as their cluster does."""
    digits = data.load(dataset)
    order = np.random.default_rng(seed).permutation(len(digits.y))
    owner = np.empty(len(order), int)
    owner[order] = np.arange(len(order)) % clients
    turned = (digits.y + TURN * cluster_of(clients)[owner]) % digits.num_classes
    arrays = data.from_arrays(
        digits.x,
        turned,
        client=owner,
        num_classes=digits.num_classes,
        shift=digits.shift,
        scale=digits.scale,
        name=f"{dataset}, numbered in {CLUSTERS} ways",
    )
    return data.federate(
        arrays, "natural", num_clients=None, seed=seed, test=0.3, validation=0.0
    )


def symmetric(matrix: np.ndarray) -> np.ndarray:
    """The mean of both directions, without what a client is to itself."""
    mean = (matrix + matrix.T) / 2
    np.fill_diagonal(mean, np.nan)
    return mean


def clustered(affinities: np.ndarray, count: int) -> np.ndarray:
    """The cluster of each client, 1 .. `count`, by average linkage of affinities."""
    distance = np.nanmax(affinities) - affinities
    np.fill_diagonal(distance, 0)
    joined = linkage(squareform(distance, checks=False), "average")
    return fcluster(joined, count, "maxclust")


def adjusted_rand_index(a: np.ndarray, b: np.ndarray) -> float:
    """How far two ways to cluster agree: 1 if in all, 0 as in the mean of chance.

    Hubert, Arabie, 1985: of pairs that are together in both, beyond chance.
    """

    def pairs(counts: np.ndarray) -> float:
        return float((counts * (counts - 1) / 2).sum())

    _, first = np.unique(a, return_inverse=True)
    _, second = np.unique(b, return_inverse=True)
    table = np.zeros((first.max() + 1, second.max() + 1))
    np.add.at(table, (first, second), 1)
    in_a, in_b = pairs(table.sum(1)), pairs(table.sum(0))
    by_chance = in_a * in_b / pairs(table.sum())
    most = (in_a + in_b) / 2
    # One cluster in both, or as many as clients: there is no other way.
    if most == by_chance:
        return 1.0
    return (pairs(table) - by_chance) / (most - by_chance)


def row_of(label: str, case: Case, runs: list[Finished]) -> Row:
    """What the runs of all seeds came to."""
    row = Row(label, rand=[], within=[], between=[], personal=[])
    for run in runs:
        view = "server" if case.method == "fedavg" else "personal"
        row.personal.append(accuracy(run.record, f"{view}/test/accuracy"))
        if case.matrix is None:
            continue
        affinities = symmetric(case.matrix(run.state.server))
        true = cluster_of(len(affinities))
        together = true[:, None] == true
        found = clustered(affinities, CLUSTERS)
        row.rand.append(adjusted_rand_index(true, found))
        row.within.append(float(np.nanmean(affinities[together])))
        row.between.append(float(np.nanmean(affinities[~together])))
    return row


def markdown(rows: list[Row]) -> str:
    """The table."""
    lines = [
        f"### {CLUSTERS} clusters, {len(rows[0].personal)} seeds\n",
        "| method | adjusted Rand index | affinity within | between | accuracy |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        texts = [row.method, "", "", "", mean_and_std(row.personal)]
        if row.rand:
            texts[1] = mean_and_std(row.rand)
            texts[2:4] = [f"{np.mean(each):.3g}" for each in (row.within, row.between)]
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def figure(matrices: dict[str, np.ndarray], rows: list[Row]) -> Any:
    """Heat maps of the first seed, clients by their true cluster."""
    drawn, panels = new_figure(3.4 * len(matrices), 3.3, len(matrices))
    rand = {row.method: row.rand[0] for row in rows if row.rand}
    for axes, (label, matrix) in zip(panels, matrices.items(), strict=True):
        values = matrix.copy()
        np.fill_diagonal(values, np.nan)
        heat_map(axes, values, "", aspect="equal")
        edges = np.flatnonzero(np.diff(cluster_of(len(values)))) + 0.5
        for edge in edges:
            axes.axhline(edge, color="white", linewidth=0.8)
            axes.axvline(edge, color="white", linewidth=0.8)
        axes.set_title(f"{label}, adjusted Rand index {rand[label]:.2f}", fontsize=9)
        axes.set_xlabel("client")
        axes.locator_params(integer=True)
    panels[0].set_ylabel("client")
    return drawn


def main(
    scale: Literal["small", "paper"] = "small",
    seeds: script.Seeds = (0, 1, 2),
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: script.Place = str(HERE),
) -> list[Row]:
    """Learnt relations of clients against clusters that are known."""
    use_compile_cache()
    small = scale == "small"
    dealt = SMALL if small else PAPER
    rounds = rounds or (30 if small else 100)
    base = BASE.replace(cohort=dealt["clients"], rounds=rounds, eval_every=rounds)
    folder = Path(out or f"runs/relations-{scale}-{rounds}")
    rows, matrices = [], {}
    for label, case in CASES.items():
        runs = finished(
            base.replace(algorithm=Component(case.method, case.hyper)),
            seeds,
            folder / case.method,
            lambda seed: federation(seed=seed, **dealt),
        )
        rows.append(row_of(label, case, runs))
        if case.matrix:
            matrices[label] = case.matrix(runs[0].state.server)
    drawn = figure(matrices, rows)
    write(f"relations_{scale}", rows, markdown(rows), drawn, Path(results))
    return rows


if __name__ == "__main__":
    script.run(main)
