"""Several methods on the same clients, cohorts and minibatches, over several seeds."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pfljax.core.types import Task
from pfljax.data import Federation
from pfljax.runs import checks, folder
from pfljax.runs.settings import Experiment
from pfljax.simulate import given
from pfljax.simulate.run import run

TUNED = "fedavg:finetune=20"  # local steps on a client before it is judged
# Who joins reports no gamma.
NO_RHO: dict[str, Any] = {"smoothness": None, "concavity": 0.0}


def grid(
    experiments: Iterable[Experiment],
    seeds: Iterable[int],
    out: str,
    local: bool = True,
    finetuned: bool = True,
) -> list[Experiment]:
    """Every experiment under every seed, each with its folder out/LABEL/sSEED.

    Local training joins them as the baseline of all, unless `local` is False, and
    FedAvg with fine-tuning unless `finetuned` is. They are in the order in which they
    run: all seeds of a method, then those of the next one.
    """
    experiments = given.experiments(experiments)
    if finetuned:
        experiments = [*experiments, *_finetuned(experiments)]
    if local:
        baselines = [e for e in experiments if e.method.algorithm == "local"]
        others = [e for e in experiments if e.method.algorithm != "local"]
        if not baselines:
            like = experiments[0]
            alone = like.replace(algorithm="local", label="local", **NO_RHO)
            # There is no server's model at which gradients could differ.
            baselines = [alone.replace(dissimilarity=False)]
        # First of all, for the others are counted against its finished run.
        experiments = [*baselines, *others]
    labels, names = _labels(experiments)
    seeds = given.seeds(seeds)

    def folder_of(name: str, seed: int) -> str:
        # Not by a "/" between: without `out` it would be the file system's root.
        return str(Path(out) / name / f"s{seed}")

    runs = []
    # Seeds share compiled programs, and those of the last few settings alone stay: by
    # seed, more methods than that would compile anew under each.
    for e, label, name in zip(experiments, labels, names, strict=True):
        for seed in seeds:
            baseline = e.evaluation.baseline
            if local:
                baseline = folder_of(names[0], seed)
            if e.method.algorithm == "local":
                baseline = None
            seeded = e.replace(
                seed=seed, label=label, out=folder_of(name, seed), baseline=baseline
            )
            runs.append(seeded)
    return runs


def _finetuned(experiments: list[Experiment]) -> list[Experiment]:
    """FedAvg with fine-tuning; nothing where it is there, or cannot be."""
    for experiment in experiments:
        method = experiment.method
        # Clients of several architectures have no parameters to average.
        if method.models:
            return []
        if method.algorithm == "fedavg" and dict(method.hyper).get("finetune"):
            return []
    like = experiments[0]
    return [like.replace(algorithm=TUNED, label=None, **NO_RHO)]


def _labels(experiments: list[Experiment]) -> tuple[list[str], list[str]]:
    """(the label of each, the name of its folder).

    Raises:
      ValueError: two have one label, or a label names no folder.
    """
    labels = [str(checks.resolve(e).output.label) for e in experiments]
    names = [re.sub(r"[^A-Za-z0-9.=-]+", "-", label) for label in labels]
    for label, name in zip(labels, names, strict=True):
        # "." and ".." are folders that are there already.
        if not name.strip("."):
            raise ValueError(
                f"label is {label!r}, which names no folder of its own; expected "
                "letters or digits in it"
            )
    if len(set(names)) < len(names):
        raise ValueError(
            f"two experiments have one label: {labels}; set Experiment.label"
        )
    return labels, names


def compare(
    experiments: Iterable[Experiment],
    seeds: Iterable[int],
    out: str,
    *,
    federation: Federation | Callable[[int], Federation] | None = None,
    task: Task | None = None,
    local: bool = True,
    finetuned: bool = True,
    quiet: bool = False,
) -> str:
    """Runs the grid, or what is left of it, and writes tables and figures to `out`.

    One run follows another in this process and shares its compiled programs.

    Returns the tables as Markdown: mean over clients with its std over seeds, the std
    over clients apart, and at the end which method is better, and whether it is by
    chance.

    Args:
      experiments: the methods; they may share all settings but `algorithm`.
      seeds: of the runs.
      out: the folder of folders.
      federation: clients of your own for all methods, or a function of the seed.
      task: a model of your own for all methods, as `run` takes it.
      local: local training joins as the baseline.
      finetuned: FedAvg joins, judged after 20 local steps of each client. It does not
        where clients have several architectures.
      quiet: no progress on stderr.

    Raises:
      ValueError: an argument is not what it has to be, or a setting is wrong.
    """
    from pfljax.report import write_comparison

    given.check_path("out", out, "a folder, such as 'runs/compared'")
    if (Path(out) / "config.json").exists():
        raise folder.FolderError(f"{out} is the folder of a run; choose another out")
    seeds = given.seeds(seeds)
    runs = grid(experiments, seeds, out, local, finetuned)
    # Made once a seed: all methods of a seed have the same clients.
    of_seed = given.by_seed(federation)
    federations = {seed: of_seed(seed) for seed in seeds}
    for experiment in runs:
        run(experiment, federations[experiment.seed], task=task, quiet=quiet)
    return write_comparison([Path(e.folder) for e in runs], Path(out))
