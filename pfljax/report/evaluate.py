"""Evaluates a finished run from its files: fairness, gains, and targets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.evaluation import fairness
from pfljax.report.curves import make_curve, spent
from pfljax.report.lead import find_lead, make_lead
from pfljax.report.runs import is_local
from pfljax.runs import claims
from pfljax.runs.result import Result, result


def evaluate(
    run: str | Path,
    metric: str | None = None,
    baseline: str | Path | None = None,
    targets: Sequence[float] = (),
    target_window: int = fairness.WINDOW,
) -> dict[str, Any]:
    """Figures over clients at the last evaluation of a run, by name.

    "figures" are those of `pfljax.evaluation.fairness.figures`; "histogram" has the
    clients in bins of 0.05, of a share alone; "area" is the area under the curve of the
    mean over clients; "targets" has what was `spent` until each target.

    Args:
      run: the folder.
      metric: "model/split/metric" of clients.npz; None is "personal/test/" and the
        metric that leads.
      baseline: the folder of local training on the same clients and seed.
      targets: values of the metric; those of a share are in (0, 1].
      target_window: evaluations in a row whose mean has to reach a target.

    Raises:
      ValueError: the metric does not exist, the baseline has other clients, or a target
        is not a value of it.
      FileError: a folder is not a finished run, or a file is damaged.
    """
    finished = result(run)
    metric = metric or f"personal/test/{find_lead([finished]).name}"
    by_round = _read_metric(finished, metric)
    _, _, measured = metric.partition("/")
    lead = make_lead(metric.rpartition("/")[2])
    fairness.check_targets(targets, target_window, lead.name)
    local = None
    if baseline is not None:
        local_run = _read_baseline(finished, baseline)
        local = _read_metric(local_run, f"personal/{measured}")[-1]
    server = finished.clients.get(f"server/{measured}")
    if server is not None:
        server = server[-1]
    # Without the clients that have no examples.
    known = by_round[:, ~np.isnan(by_round).all(axis=0)].astype(float)
    curve = make_curve(finished)._replace(lead=lead, mean=known.mean(axis=1))
    figures = fairness.figures(by_round[-1], local, server, sign=lead.sign)
    counts = fairness.histogram(by_round[-1]).tolist() if lead.is_share else None
    return {
        "round": int(curve.rounds[-1]),
        "metric": metric,
        "count": int(np.isfinite(by_round[-1]).sum()),
        "mean": float(curve.mean[-1]),
        "figures": figures,
        "histogram": counts,
        "area": fairness.area(curve.rounds, curve.mean),
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
    known = [
        name
        for name, values in run.clients.items()
        if values.shape == shape and name.count("/") == 2
    ]
    if metric not in known:
        raise ValueError(
            f"{run.folder} has no metric {metric!r} by round and client; expected one "
            f"of {', '.join(sorted(known))}"
        )
    return run.clients[metric]
