"""Runs an experiment under several seeds, and reads finished runs."""

import sys
from collections.abc import Sequence
from pathlib import Path

from pfljax.runs.result import Result, result
from pfljax.runs.settings import Experiment
from pfljax.simulate.run import run


def finished(experiment: Experiment, seeds: Sequence[int], out: Path) -> list[Result]:
    """The runs of these seeds; what is finished is not run again."""
    print(f"{out}", file=sys.stderr, flush=True)
    folders = [out / f"s{seed}" for seed in seeds]
    for seed, folder in zip(seeds, folders, strict=True):
        run(experiment.replace(seed=seed, out=str(folder)), quiet=True, report=False)
    return [result(folder) for folder in folders]
