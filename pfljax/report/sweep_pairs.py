"""The points of a sweep in pairs: which is better, by seeds alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from pfljax import registry
from pfljax.report import sweeps
from pfljax.report.paired import Paired, paired
from pfljax.report.runs import is_baseline
from pfljax.report.sweep_rows import Rows, names_of
from pfljax.runs.settings import FIELDS

WITHOUT_BASELINES = (
    "Local training and fine-tuned FedAvg are no points of this sweep: hold a point "
    "against them by `pfljax compare {command}`, or sweep over methods: `--over "
    "algorithm local fedavg:finetune=20 {method}`."
)


def in_pairs(rows: Rows, algorithm: str) -> Paired:
    """The best point, and local training if it is one, against each other point.

    Where no baseline is a point, it says how to hold one against them. `algorithm` is
    the method of all points, if methods are not swept.
    """
    names = names_of(rows)
    # Each point by the model it is judged by, whatever else is equal.
    points = sweeps.table(rows, once=False)
    baselines = {sweeps.point_text(row, names) for row in rows if _is_baseline(row)}
    flagged = [row._replace(baseline=row.method in baselines) for row in points.rows]
    compared = paired([points._replace(rows=tuple(flagged))])
    if baselines:
        return compared
    advice = _advice(names, algorithm)
    return compared._replace(key=f"{compared.key} {advice}".lstrip())


def _is_baseline(row: Mapping[str, Any]) -> bool:
    """Whether methods are swept, and this is what personalisation has to beat."""
    if "algorithm" not in row:
        return False
    method = registry.parse(row["algorithm"])
    return is_baseline(method.name, method.kwargs)


def _advice(names: Sequence[str], algorithm: str) -> str:
    """The commands that hold a point against the baselines."""
    options = ",".join(f"{name}=VALUE" for name in names if name not in FIELDS)
    settings = [f"--{name.replace('_', '-')} VALUE" for name in names if name in FIELDS]
    method = f"{algorithm}:{options}" if options else algorithm
    command = " ".join([method, *settings])
    return WITHOUT_BASELINES.format(command=command, method=method)
