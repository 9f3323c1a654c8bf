"""A finished run judged again from its files: fairness, gains, and targets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.evaluation import fairness
from pfljax.report.runs import Run, read_run
from pfljax.report.targets import Course, spent
from pfljax.runs import baseline as local_training

PERSONAL = "personal/test/accuracy"
SHARES = ("/accuracy", "/top5")  # between 0 and 1, and more is better


def judge(
    run: str | Path,
    metric: str = PERSONAL,
    baseline: str | Path | None = None,
    targets: Sequence[float] = (),
) -> dict[str, Any]:
    """Figures over clients at the last evaluation of a run folder, by name.

    "figures" are those of `pfljax.evaluation.fairness.figures`; "histogram" has the
    clients in bins of .05; "area" is that under the curve of the mean over clients, and
    "targets" what was spent until it reached each target, see `report.targets.spent`.

    Args:
        run: the folder.
        metric: "model/split/metric" of per_client.npz, a share of rows by client.
        baseline: the folder of local training on the same clients and seed. Its gain
            is that over its personal models.
        targets: accuracies in (0, 1].

    Raises:
        ValueError: a folder is no finished run, the metric is not there, the baseline
            is of other clients or a target is no accuracy.
        FileError: a file there is damaged.
    """
    fairness.check_targets(targets)
    judged = read_run(run)
    by_round = _by_round(judged, metric)
    _, _, measured = metric.partition("/")
    alone = None
    if baseline is not None:
        local = _local(judged, baseline)
        alone = _by_round(local, f"personal/{measured}")[-1]
    before = judged.per_client.get(f"server/{measured}")
    rounds = judged.per_client["round"]
    curve = _means(by_round)
    course = Course(rounds, curve, judged.rounds)
    return {
        "round": int(rounds[-1]),
        "metric": metric,
        "count": int(np.isfinite(by_round[-1]).sum()),
        "mean": float(curve[-1]),
        "figures": fairness.figures(
            by_round[-1], alone, None if before is None else before[-1]
        ),
        "histogram": fairness.histogram(by_round[-1]).tolist(),
        "area": fairness.area(rounds, curve),
        "targets": {target: spent(course, target) for target in targets},
    }


def _local(judged: Run, folder: str | Path) -> Run:
    """The run of local training in `folder`, on the same clients and seed.

    Raises:
        ValueError: it is another one.
    """
    local_training.check(str(folder), judged.partition)
    local = read_run(folder)
    seed = judged.config["seed"]
    if local.config["seed"] != seed:
        raise ValueError(
            f"baseline {folder} has seed {local.config['seed']}, and {judged.folder} "
            f"has {seed}; give the run of local training with that seed"
        )
    return local


def _by_round(run: Run, metric: str) -> np.ndarray:
    """f32[T, C] of a run under this name.

    Raises:
        ValueError: it has no such metric, or not one between 0 and 1.
    """
    shape = (len(run.per_client["round"]), len(run.partition["class_histogram"]))
    shares = [
        name
        for name, values in run.per_client.items()
        if values.shape == shape and name.endswith(SHARES)
    ]
    if metric not in shares:
        raise ValueError(
            f"{run.folder} has no metric {metric!r} by round and client; expected one "
            f"of {', '.join(sorted(shares))}"
        )
    return run.per_client[metric]


def _means(by_round: np.ndarray) -> np.ndarray:
    """Means f64[T] over the clients that have rows."""
    has_rows = ~np.isnan(by_round).all(axis=0)
    return np.asarray(by_round[:, has_rows], np.float64).mean(axis=1)
