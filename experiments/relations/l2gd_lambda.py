"""L2GD over lambda: how much is sent, and how personal the models are.

Hanzely, Richtarik, 2020, https://arxiv.org/abs/2002.05516.

    python experiments/relations/l2gd_lambda.py --scale small
    pfljax prepare mnist; python experiments/relations/l2gd_lambda.py --scale paper

Logistic regression takes a step on all examples of each client in a round, and all
clients take part. The coin of a lambda has the best probability of the paper,
p = lambda / (L + lambda), with L = 1 / (2 rate), so that a coin of 1 moves x_k half of
the way to the mean. The table counts the rounds in which a model is sent, by the coins
that fell; on average these are p (1 - p) of all rounds. It also shows the limits: local
training, which sends nothing, and FedAvg with one step, which sends in every round.

The small scale has 20 clients of the digits and 1,000 rounds, and the paper scale 100
clients of MNIST and 2,000 rounds. The paper's figures show the objective on LIBSVM's
data; their numbers were not read.
"""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from finished import HERE, Finished, accuracy, finished, mean_and_std, script, write

from pfljax.core import tree
from pfljax.core.components import Component
from pfljax.report.style import GREY, GRID, PALETTE, new_figure
from pfljax.runs.settings import Experiment
from pfljax.runtime.devices import use_compile_cache

LAMBDAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
RATE = 0.1
PULL = 0.5  # of a coin 1: the share of the way to the mean
SMALL = Experiment(
    "l2gd",
    partition="dirichlet:alpha=0.5,min_size=10",
    clients=20,
    cohort=20,
    rounds=1000,
    epochs=None,
    steps=1,
    batch_size=512,  # all rows of a client
    lr=RATE,
    model="logistic",
    validation=0.0,
    eval_every=1000,
    devices=1,
)
PAPER: dict[str, Any] = {
    "dataset": "mnist",
    "clients": 100,
    "cohort": 100,
    "rounds": 2000,
    "eval_every": 2000,
    "batch_size": 4096,
    "examples": "all",
}
LIMITS = {"local": "local training", "fedavg": "FedAvg"}


class Row(NamedTuple):
    """A lambda, or a limit, whose lambda is 0 or infinite; lists are by seed."""

    method: str
    lam: float
    p: float
    rounds: int
    sent: list[int]  # rounds in which a model is sent
    personal: list[float]  # percent
    mean_model: list[float]
    distance: list[float]  # root mean square of x_k to their mean


def probability(lam: float) -> float:
    """The best p of L = pull / rate; the pull of a coin 1 is `PULL` then."""
    return lam / (PULL / RATE + lam)


def row_of(method: str, lam: float, p: float, runs: list[Finished]) -> Row:
    """What the runs of all seeds came to."""
    return Row(
        method=method,
        lam=lam,
        p=p,
        rounds=runs[0].record.rounds,
        sent=[rounds_sent(method, run) for run in runs],
        personal=[best_view(run) for run in runs],
        mean_model=[accuracy(run.record, "server/test/accuracy") for run in runs],
        distance=[distance(run) for run in runs],
    )


def rounds_sent(method: str, run: Finished) -> int:
    """Rounds in which clients send a model."""
    lines = run.record.metrics
    if method == "local":
        return 0
    if method == "fedavg":
        return len(lines)
    # A coin 1 after a coin 0: what is sent is told by the method itself.
    return sum(line["train_sent_bytes"] > 0 for line in lines)


def best_view(run: Finished) -> float:
    """The accuracy of who is evaluated with its own model, or by the server's."""
    personal = accuracy(run.record, "personal/test/accuracy")
    server = accuracy(run.record, "server/test/accuracy")
    return server if np.isnan(personal) else personal


def distance(run: Finished) -> float:
    """Root mean square distance of the clients' models to their mean."""
    models = run.state.clients
    leaves = [np.asarray(leaf) for leaf in tree.paths(models).values()]
    square = sum(np.square(leaf - leaf.mean(0)).sum() / len(leaf) for leaf in leaves)
    return float(np.sqrt(square))


def markdown(rows: list[Row]) -> str:
    """The table."""
    lines = [
        f"### {rows[0].rounds} rounds, {len(rows[0].sent)} seeds\n",
        "| lambda | p | rounds that send: coins | p (1 - p) | personal | mean model | "
        "distance |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        of_l2gd = row.method == "l2gd"
        texts = [
            f"{row.lam:g}" if of_l2gd else LIMITS[row.method],
            f"{row.p:.3f}" if of_l2gd else "",
            f"{np.mean(row.sent):.1f}",
            f"{row.rounds * row.p * (1 - row.p):.1f}" if of_l2gd else "",
            mean_and_std(row.personal),
            mean_and_std(row.mean_model),
            f"{np.mean(row.distance):.2f}",
        ]
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def figure(rows: list[Row]) -> Any:
    """Accuracy and what is sent, over lambda."""
    drawn, (left, right) = new_figure(8.0, 3.2, 2)
    swept = [row for row in rows if row.method == "l2gd"]
    lam = [row.lam for row in swept]
    for name, colour in (("personal", PALETTE[0]), ("mean_model", PALETTE[1])):
        values = np.array([getattr(row, name) for row in swept])
        spread = np.std(values, 1, ddof=1) if values.shape[1] > 1 else None
        label = name.replace("_", " ")
        left.errorbar(
            lam, values.mean(1), spread, fmt="o-", color=colour, capsize=3, label=label
        )
    for row, dash in zip(
        [row for row in rows if row.method in LIMITS], ("--", ":"), strict=False
    ):
        label = LIMITS[row.method]
        left.axhline(
            float(np.mean(row.personal)), color=GREY, linestyle=dash, label=label
        )
    sent = [np.mean(row.sent) for row in swept]
    expected = [row.rounds * row.p * (1 - row.p) for row in swept]
    right.plot(lam, sent, "o", color=PALETTE[0], label="coins that fell")
    right.plot(lam, expected, "-", color=GREY, label="p (1 - p) of the rounds")
    for axes in (left, right):
        axes.set(xscale="log", xlabel="lambda")
        axes.grid(axis="y", **GRID)
        axes.legend(frameon=False, fontsize=8)
    left.set_ylabel("test accuracy (%)")
    right.set_ylabel(f"of {rows[0].rounds} rounds, those that send")
    return drawn


def main(
    scale: Literal["small", "paper"] = "small",
    seeds: script.Seeds = (0, 1, 2),
    lambdas: script.Numbers = LAMBDAS,
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: script.Place = str(HERE),
) -> list[Row]:
    """L2GD over lambda: what is sent, against how personal the models are."""
    use_compile_cache()
    base = SMALL if scale == "small" else SMALL.replace(**PAPER)
    if rounds:
        base = base.replace(rounds=rounds, eval_every=rounds)
    folder = Path(out or f"runs/l2gd-{scale}" + (f"-{rounds}" if rounds else ""))
    cases: list[tuple[str, float, float]] = [("local", 0.0, 0.0)]
    cases += [("l2gd", lam, probability(lam)) for lam in lambdas]
    cases += [("fedavg", float("inf"), 1.0)]
    rows = []
    for method, lam, p in cases:
        hyper = {"lam": lam, "p": p} if method == "l2gd" else {}
        experiment = base.replace(algorithm=Component(method, hyper))
        runs = finished(experiment, seeds, folder / f"{method}-{lam:g}")
        rows.append(row_of(method, lam, p, runs))
    write(f"l2gd_lambda_{scale}", rows, markdown(rows), figure(rows), Path(results))
    return rows


if __name__ == "__main__":
    script.run(main)
