"""FedMeta on Shakespeare's roles: new clients, before and after they adapt (2018).

Chen, Luo, Dong, Li, He, https://arxiv.org/abs/1802.07876.

    pfljax prepare shakespeare_roles --raw FOLDER
    python experiments/relations/fedmeta_shakespeare.py --scale small
    python experiments/relations/fedmeta_shakespeare.py --scale paper

A fifth of the roles never train. Each of them receives the model, adapts it to its own
examples, and evaluates it on its test examples. MAML and Meta-SGD take one inner step
on a fifth of its training examples. FedAvg takes `FINETUNE` local steps, which is the
paper's FedAvg(Meta). "before" is the model as it was sent. FedAvg also runs at the rate
of the meta-learners' server, to separate the effect of the rate from that of the
method.

The protocol is that of the paper: LEAF's LSTM with two layers of 256 units, four
clients in each of 400 rounds, inner rate 0.1, the server's Adam at 0.01, FedAvg with
Adam at 0.001, and batches of 10. It differs in three points: roles come from 37 plays
without LEAF's overlaps of examples, a fifth of them is held out, and no examples are
kept to choose a round.

The abstract reports 3.23 to 14.84 points above FedAvg on LEAF, with 2.82 to 4.33 times
less communication. The table's numbers were not read.

The small scale has an LSTM with one layer of 32 units, every second example of roles
with 100 examples or more, and 150 rounds.
"""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from finished import HERE, Finished, accuracy, finished, mean_and_std, script, write

from pfljax.core.components import Component
from pfljax.report.style import GRID, PALETTE, new_figure
from pfljax.runs.settings import Experiment
from pfljax.runtime.devices import use_compile_cache

FINETUNE = 5
INNER = {"inner_lr": 0.1, "support": 0.2}
META_SGD = {"learn_alpha": True}
FIRST = {"first_order": True}
PAPER = Experiment(
    dataset="shakespeare_roles:stride=1,min_size=20",
    partition="natural",
    clients=None,
    unseen=0.2,
    test=0.2,
    validation=0.0,
    examples="all",
    cohort=4,
    rounds=400,
    epochs=1,
    batch_size=10,
    optimizer="adam",
    model="char_lstm",
    devices=1,
)
SMALL: dict[str, Any] = {
    "dataset": "shakespeare_roles:stride=80,min_size=100,every=2",
    "model": "char_lstm:hidden=32,layers=1",
    "rounds": 150,
}
METHODS: dict[str, tuple[str, float, dict[str, Any]]] = {  # method, rate, options
    "FedAvg": ("fedavg", 0.001, {"finetune": FINETUNE}),
    "FedAvg, ten times the rate": ("fedavg", 0.01, {"finetune": FINETUNE}),
    "MAML": ("fedmeta", 0.01, INNER),
    "MAML, first order": ("fedmeta", 0.01, INNER | FIRST),
    "Meta-SGD": ("fedmeta", 0.01, INNER | META_SGD),
    "Meta-SGD, first order": ("fedmeta", 0.01, INNER | META_SGD | FIRST),
}


class Row(NamedTuple):
    """A method's accuracies, percent by seed."""

    method: str
    rounds: int
    before: list[float]  # of new clients
    after: list[float]
    seen_before: list[float]  # of those that train
    seen_after: list[float]


def row_of(label: str, runs: list[Finished]) -> Row:
    """What the runs of all seeds came to."""

    def of(name: str) -> list[float]:
        return [accuracy(run.record, f"{name}/test/accuracy") for run in runs]

    return Row(
        method=label,
        rounds=runs[0].record.rounds,
        before=of("unseen:server"),
        after=of("unseen:personal"),
        seen_before=of("server"),
        seen_after=of("personal"),
    )


def markdown(rows: list[Row]) -> str:
    """The table."""
    lines = [
        f"### {rows[0].rounds} rounds, {len(rows[0].before)} seeds\n",
        "| method | new clients, before | after | gain of adapting | those that train, "
        "before | after |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        gain = np.mean(row.after) - np.mean(row.before)
        texts = [
            row.method,
            mean_and_std(row.before),
            mean_and_std(row.after),
            f"{gain:+.2f}",
            mean_and_std(row.seen_before),
            mean_and_std(row.seen_after),
        ]
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join(lines)


def figure(rows: list[Row]) -> Any:
    """Accuracies of new clients, before and after."""
    drawn, (axes,) = new_figure(6.4, 1.2 + 0.35 * len(rows))
    # The first method on top: y grows upwards.
    place = np.arange(len(rows))[::-1]
    before, after = (
        np.array([getattr(row, name) for row in rows]) for name in ("before", "after")
    )
    axes.hlines(place, before.mean(1), after.mean(1), color=PALETTE[0], linewidth=0.8)
    axes.plot(before.mean(1), place, "o", color=PALETTE[0], mfc="white", label="before")
    spread = np.std(after, 1, ddof=1) if after.shape[1] > 1 else None
    axes.errorbar(
        after.mean(1), place, xerr=spread, fmt="o", color=PALETTE[0], capsize=3,
        label="after adapting",
    )  # fmt: skip
    axes.set_yticks(place, [row.method for row in rows])
    axes.set_xlabel("next character, test accuracy of new clients (%)")
    axes.grid(axis="x", **GRID)
    axes.legend(frameon=False, fontsize=8)
    return drawn


def main(
    scale: Literal["small", "paper"] = "small",
    seeds: script.Seeds = (0, 1),
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: script.Place = str(HERE),
) -> list[Row]:
    """FedMeta on Shakespeare's roles: new clients, before and after they adapt."""
    use_compile_cache()
    base = PAPER.replace(**SMALL) if scale == "small" else PAPER
    base = base.replace(rounds=rounds or base.rounds)
    base = base.replace(eval_every=base.rounds)
    folder = Path(out or f"runs/fedmeta-{scale}" + (f"-{rounds}" if rounds else ""))
    rows = []
    for label, (method, rate, hyper) in METHODS.items():
        experiment = base.replace(algorithm=Component(method, hyper), lr=rate)
        runs = finished(experiment, seeds, folder / label.replace(", ", "-"))
        rows.append(row_of(label, runs))
    write(
        f"fedmeta_shakespeare_{scale}",
        rows,
        markdown(rows),
        figure(rows),
        Path(results),
    )
    return rows


if __name__ == "__main__":
    script.run(main)
