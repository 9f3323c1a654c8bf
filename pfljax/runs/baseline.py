"""Against local training: the share of clients that a run leaves worse off.

NumPy alone, so that reports are written without JAX.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.runs import folder
from pfljax.runs.settings import Experiment


def worse_share(accuracy: np.ndarray, baseline: np.ndarray) -> float:
    """Share of clients whose accuracy [C] lies below that of the baseline run [C]."""
    both = np.isfinite(accuracy) & np.isfinite(baseline)
    return (
        float(np.mean(accuracy[both] < baseline[both])) if both.any() else float("nan")
    )


def check(baseline: str | None, manifest: Mapping[str, Any]) -> None:
    """Raises a ValueError unless it is a finished run of "local" on these clients."""
    if baseline is None:
        return
    path = Path(baseline)
    if not (path / "summary.json").exists():
        raise ValueError(f"baseline {path} is not a finished run; run it first")
    if not folder.same_clients(folder.read_json(path / "partition.json"), manifest):
        raise ValueError(
            f"baseline {path} is over other clients; "
            "run it with the same data settings and seed"
        )
    method = folder.read_config(path).method.algorithm
    if method != "local":
        raise ValueError(
            f"baseline {path} is a run of {method!r}, but worse_than_local is counted "
            'against "local"; run --algorithm local on the same data'
        )


def worse_than(baseline: str | None, arrays: Mapping[str, np.ndarray]) -> float | None:
    """Share of clients below their accuracy in the baseline run; None without one."""
    if baseline is None:
        return None
    name = "personal/test/accuracy"
    there = folder.read_arrays(Path(baseline) / "per_client.npz")
    return worse_share(arrays[name][-1], there[name][-1])


def recount(path: Path, experiment: Experiment) -> None:
    """Counts a finished run anew if another baseline is given; its page goes."""
    if folder.read_config(path).evaluation.baseline == experiment.evaluation.baseline:
        return
    check(experiment.evaluation.baseline, folder.read_json(path / "partition.json"))
    share = worse_than(
        experiment.evaluation.baseline, folder.read_arrays(path / "per_client.npz")
    )
    summary = folder.read_json(path / "summary.json") | {"worse_than_local": share}
    folder.write_json(path / "summary.json", summary)
    (path / "report.html").unlink(missing_ok=True)
    folder.set_unhashed(
        path, baseline=experiment.evaluation.baseline
    )  # last: a kill repeats it
