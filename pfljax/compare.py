"""Several methods on the same clients, cohorts and minibatches, over several seeds."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pfljax import config
from pfljax.config import Experiment
from pfljax.experiment import run


def grid(
    experiments: Iterable[Experiment],
    seeds: Iterable[int],
    out: str,
    local: bool = True,
) -> list[Experiment]:
    """Every experiment under every seed, each with its folder out/LABEL/sSEED.

    Local training joins them as the baseline of all, unless `local` is False.
    """
    experiments = list(experiments)
    if local and all(e.algorithm != "local" for e in experiments):
        experiments.insert(0, experiments[0].replace(algorithm="local", hyper={}))
        experiments[0] = experiments[0].replace(label="local")
    labels = [config.resolve(e).label for e in experiments]
    if len(set(labels)) < len(labels):
        raise ValueError(
            f"two experiments have one label: {labels}; set Experiment.label"
        )
    return [
        e.replace(
            seed=seed,
            label=label,
            out=f"{out}/{re.sub(r'[^A-Za-z0-9.=-]+', '-', str(label))}/s{seed}",
            baseline=f"{out}/local/s{seed}" if local else e.baseline,
        )
        for seed in seeds
        for e, label in zip(experiments, labels, strict=True)
    ]


def compare(
    experiments: Iterable[Experiment],
    seeds: Sequence[int],
    out: str,
    *,
    local: bool = True,
    quiet: bool = False,
) -> str:
    """Runs the grid, or what is left of it, and writes tables and figures to `out`.

    Returns the table as Markdown: mean over clients with its std over seeds, and the
    std over clients apart.
    """
    from pfljax.report import write_comparison

    runs = grid(experiments, seeds, out, local)
    for experiment in runs:
        run(experiment, quiet=quiet)
    return write_comparison([Path(e.folder) for e in runs], Path(out))
