"""Against local training: the share of clients that a run leaves worse off.

NumPy alone, so that reports are written without JAX.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pfljax.evaluation.fairness import worse_share
from pfljax.runs import claims, folder
from pfljax.runs.settings import Experiment


def check(baseline: str | None, manifest: Mapping[str, Any]) -> None:
    """Raises a ValueError unless it is a finished run of "local" on these clients."""
    if baseline is None:
        return
    path = Path(baseline)
    if not (path / "summary.json").exists():
        raise ValueError(f"baseline {path} is not a finished run; run it first")
    if not claims.same_clients(folder.read_json(path / "partition.json"), manifest):
        raise ValueError(
            f"baseline {path} is over other clients; "
            "run it with the same data settings and seed"
        )
    method = folder.read_config(path).algorithm.name
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
    local = folder.read_arrays(Path(baseline) / "per_client.npz")
    return worse_share(arrays[name][-1], local[name][-1])


def recount(path: Path, experiment: Experiment) -> None:
    """Counts a finished run anew if another baseline is given; its page goes."""
    baseline = experiment.baseline
    if folder.read_config(path).baseline == baseline:
        return
    check(baseline, folder.read_json(path / "partition.json"))
    share = worse_than(baseline, folder.read_arrays(path / "per_client.npz"))
    summary = folder.read_json(path / "summary.json")
    folder.write_json(path / "summary.json", summary | {"worse_than_local": share})
    (path / "report.html").unlink(missing_ok=True)
    # The settings are written last: after a kill they still name the old baseline, and
    # all of this is done again.
    claims.set_unhashed(path, baseline=baseline)
