"""Evaluates a finished run from its files: fairness, gains, and targets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.evaluation import fairness
from pfljax.report.curves import make_curve, spent
from pfljax.report.runs import PERSONAL, is_local
from pfljax.runs import claims
from pfljax.runs.result import Result, result

SHARES = ("/accuracy", "/top5")  # between 0 and 1, and more is better


def evaluate(
    run: str | Path,
    metric: str = PERSONAL,
    baseline: str | Path | None = None,
    targets: Sequence[float] = (),
    target_window: int = fairness.WINDOW,
) -> dict[str, Any]:
    """Figures over clients at the last evaluation of a run, by name.

    "figures" are those of `pfljax.evaluation.fairness.figures`; "histogram" has the
    clients in bins of 0.05; "area" is the area under the curve of the mean over
    clients; "targets" has what was `spent` until each target.

    Args:
      run: the folder.
      metric: "model/split/metric" of clients.npz, a share of examples.
      baseline: the folder of local training on the same clients and seed.
      targets: accuracies in (0, 1].
      target_window: evaluations in a row whose mean has to reach a target.

    Raises:
      ValueError: the metric does not exist, the baseline has other clients, or a target
        is not an accuracy.
      FileError: a folder is not a finished run, or a file is damaged.
    """
    fairness.check_targets(targets, target_window)
    finished = result(run)
    by_round = _read_metric(finished, metric)
    _, _, measured = metric.partition("/")
    local = None
    if baseline is not None:
        local_run = _read_baseline(finished, baseline)
        local = _read_metric(local_run, f"personal/{measured}")[-1]
    server = finished.clients.get(f"server/{measured}")
    if server is not None:
        server = server[-1]
    # Without the clients that have no examples.
    known = by_round[:, ~np.isnan(by_round).all(axis=0)].astype(float)
    curve = make_curve(finished)._replace(accuracy=known.mean(axis=1))
    return {
        "round": int(curve.rounds[-1]),
        "metric": metric,
        "count": int(np.isfinite(by_round[-1]).sum()),
        "mean": float(curve.accuracy[-1]),
        "figures": fairness.figures(by_round[-1], local, server),
        "histogram": fairness.histogram(by_round[-1]).tolist(),
        "area": fairness.area(curve.rounds, curve.accuracy),
        "targets": {each: spent(curve, each, target_window) for each in targets},
    }


def _read_baseline(run: Result, folder: str | Path) -> Result:
    """The run of local training in `folder`, on the same clients and seed."""
    local = result(folder)
    is_fitting = (
        is_local(local.experiment)
        and local.experiment.seed == run.experiment.seed
        and claims.same_clients(local.partition, run.partition)
    )
    if not is_fitting:
        raise ValueError(
            f"baseline {folder} does not fit {run.folder}; give a run of 'local' with "
            f"the same data settings and seed {run.experiment.seed}"
        )
    return local


def _read_metric(run: Result, metric: str) -> np.ndarray:
    """The metric f32[T, C] of a run."""
    shape = (len(run.clients["round"]), len(run.partition["class_histogram"]))
    shares = [
        name
        for name, values in run.clients.items()
        if values.shape == shape and name.endswith(SHARES)
    ]
    if metric not in shares:
        raise ValueError(
            f"{run.folder} has no metric {metric!r} by round and client; expected one "
            f"of {', '.join(sorted(shares))}"
        )
    return run.clients[metric]
