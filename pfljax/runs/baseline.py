"""The share of clients that a run leaves worse off than local training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pfljax.evaluation.fairness import worse_share
from pfljax.runs import claims, config, folder
from pfljax.runs.settings import Experiment

ACCURACY = "personal/test/accuracy"


def check(baseline: str | None, manifest: Mapping[str, Any]) -> None:
    """Raises a ValueError unless it is a finished run of "local" on these clients."""
    if baseline is None:
        return
    path = Path(baseline)
    if not (path / "summary.json").exists():
        raise ValueError(f"baseline {path} is not a finished run; run it first")
    if not claims.same_clients(folder.read_partition(path), manifest):
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


def worse_than(baseline: str | None, arrays: Mapping[str, Any]) -> float | None:
    """The share of clients below their accuracy in the baseline; None without one."""
    if baseline is None:
        return None
    local = folder.read_arrays(Path(baseline) / "clients.npz", [ACCURACY])
    return worse_share(arrays[ACCURACY][-1], local[ACCURACY][-1])


def recount(path: Path, experiment: Experiment) -> None:
    """Updates a finished run whose baseline has changed, and removes its page."""
    old = folder.read_config(path)
    baseline = experiment.baseline
    if old.baseline == baseline:
        return
    check(baseline, folder.read_partition(path))
    arrays = folder.read_arrays(path / "clients.npz", [ACCURACY])
    summary = folder.read_json(path / "summary.json")
    summary["worse_than_local"] = worse_than(baseline, arrays)
    folder.write_json(path / "summary.json", summary)
    (path / "report.html").unlink(missing_ok=True)
    # Last: after a kill the settings still name the old baseline, and all of this is
    # done again.
    settings = config.to_dict(old.replace(baseline=baseline))
    folder.write_json(path / "config.json", settings)
