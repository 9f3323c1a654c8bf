"""Uncertainty of methods with posteriors and of deterministic ones (CVPR 2023, ours).

    pfljax prepare fashion_mnist
    python experiments/pfedvem_cvpr23/uncertainty.py --scale small
    python experiments/pfedvem_cvpr23/uncertainty.py --scale paper

The clients are the 50 clients of Fashion-MNIST in Table 1, with half of the classes
each. A client's own test examples give accuracy, negative log likelihood, Brier score,
calibration and predictive entropy. AUROC measures how well the entropy distinguishes
its own test examples from 200 examples of the other half of the classes; 0.5 is chance.
"Path" is the ensemble of the models between SuPerFed's two ends.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from vem import (
    FASHION,
    RESULTS,
    best_round,
    experiment_of,
    script,
    skewed,
    std_over_seeds,
    with_std,
)

from pfljax.runs.settings import Experiment
from pfljax.runtime.devices import use_compile_cache
from pfljax.simulate.run import run

CLIENTS = 50
OOD_EXAMPLES = 200  # rows of other classes, of each client
METRICS = ("accuracy", "loss", "brier", "ece", "entropy", "auroc")


class Row(NamedTuple):
    """What a method reached; means over clients and seeds, after the last round."""

    method: str
    seeds: int
    rounds: int
    accuracy: float
    accuracy_std: float  # over seeds, as below
    loss: float
    brier: float
    ece: float
    entropy: float
    auroc: float
    auroc_std: float


def methods(small: bool) -> dict[str, Experiment]:
    """The experiment of each row but the path's."""
    made = {
        label: experiment_of(FASHION, label, CLIENTS, small)
        for label in ("Local", "FedAvg", "FedPer", "pFedVEM", "pFedBayes")
    }
    for label in ("pFedVEM", "pFedBayes"):
        method = made[label].algorithm
        drawn = method.with_options({"draws": 10})
        made[f"{label}, 10 draws"] = made[label].replace(algorithm=drawn)
    plain = made["FedAvg"]
    made["VIRTUAL"] = plain.replace(algorithm="virtual")
    made["SuPerFed-MM"] = plain.replace(algorithm="superfed")
    return {
        label: job.replace(label=label, ood_examples=OOD_EXAMPLES)
        for label, job in made.items()
    }


def means(metrics: Mapping[str, Any]) -> list[float]:
    """The means over clients of a record's metrics, in the order of `METRICS`."""
    return [metrics[name]["mean"] for name in METRICS]


def row_of(method: str, rounds: int, by_seed: list[list[float]]) -> Row:
    """The figures of a method over seeds."""
    values = np.array(by_seed)
    over_seeds = dict(zip(METRICS, values.mean(0).tolist(), strict=True))
    over_seeds["accuracy"] *= 100
    return Row(
        method=method,
        seeds=len(values),
        rounds=rounds,
        accuracy_std=100 * float(std_over_seeds(values[:, 0])),
        auroc_std=float(std_over_seeds(values[:, -1])),
        **over_seeds,
    )


def used_metrics(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metrics of the model that clients use: their own, or the server's."""
    by_model = {
        record["model"]: record["metrics"]
        for record in summary["last"]["evaluations"]
        if (record["split"], record["clients"], record["finetune"])
        == ("test", "all", 0)
    }
    return by_model.get("personal") or by_model["server"]


def markdown(rows: list[Row]) -> str:
    """The table."""
    lines = [
        "| method | accuracy, % | NLL | Brier | ECE | entropy | AUROC |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.method} | {with_std(row.accuracy, row.accuracy_std)} | "
            f"{row.loss:.3f} | {row.brier:.3f} | {row.ece:.3f} | {row.entropy:.3f} | "
            f"{with_std(row.auroc, row.auroc_std, 3)} |"
        )
    return "\n".join(lines)


def main(
    scale: Literal["small", "paper"] = "small",
    seeds: script.Seeds = (0, 1, 2),
    rounds: script.Rounds = None,
    out: script.Out = None,
    results: script.Results = None,
) -> list[Row]:
    """Uncertainty of methods with posteriors beside deterministic ones."""
    use_compile_cache()
    small = scale == "small"
    folder = Path(out or f"runs/pfedvem_uncertainty-{scale}")
    rows = []
    for label, experiment in methods(small).items():
        last = rounds or experiment.rounds
        experiment = experiment.replace(rounds=last, eval_every=last)
        print(label, file=sys.stderr, flush=True)
        of_models, of_paths = [], []
        for seed in seeds:
            job = experiment.replace(seed=seed, out=str(folder / label / f"s{seed}"))
            federation = skewed(FASHION, CLIENTS, small, seed)
            summary = run(job, federation, quiet=True, report=False).summary
            of_models.append(means(used_metrics(summary)))
            if summary["mixture"]:
                of_paths.append(means(summary["mixture"]["ensemble"]))
        rows.append(row_of(label, last, of_models))
        if of_paths:
            rows.append(row_of(f"{label}, path", last, of_paths))
    print(markdown(rows))
    place = Path(results or RESULTS) / f"uncertainty_{scale}"
    best_round.write(place, rows, markdown(rows))
    return rows


if __name__ == "__main__":
    script.run(main)
