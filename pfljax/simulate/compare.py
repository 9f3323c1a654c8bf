"""Several methods on the same clients, cohorts and minibatches, over several seeds."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pfljax.core.types import Task
from pfljax.data import Federation
from pfljax.runs import checks, folder
from pfljax.runs.settings import Experiment
from pfljax.simulate import arguments, begin
from pfljax.simulate.run import run

TUNED = "fedavg:finetune=20"  # local steps on a client before it is evaluated
# The baselines report no gamma.
NO_RHO: dict[str, Any] = {"smoothness": None, "concavity": 0.0}


def grid(
    experiments: Iterable[Experiment],
    seeds: Iterable[int],
    out: str,
    local: bool = True,
    finetuned: bool = True,
) -> list[Experiment]:
    """Every experiment under every seed, each with its folder out/LABEL/sSEED.

    Local training is added as the baseline of all, unless `local` is False, and
    fine-tuned FedAvg unless `finetuned` is. The runs are in their order: all seeds of a
    method, then those of the next one.
    """
    experiments = arguments.list_experiments(experiments)
    if finetuned:
        experiments = [*experiments, *_tuned_fedavg(experiments)]
    if local:
        baselines = [e for e in experiments if e.algorithm.name == "local"]
        others = [e for e in experiments if e.algorithm.name != "local"]
        if not baselines:
            like = experiments[0]
            alone = like.replace(algorithm="local", label="local", **NO_RHO)
            # There is no server's model at which gradients could differ.
            baselines = [alone.replace(dissimilarity=False)]
        # First, because the others are compared with its finished run.
        experiments = [*baselines, *others]
    labels, names = _labels(experiments)
    seeds = arguments.list_seeds(seeds)

    def run_folder(name: str, seed: int) -> str:
        # Not by a "/" between: without `out` it would be the file system's root.
        return str(Path(out) / name / f"s{seed}")

    runs = []
    # Method by method: its seeds share compiled programs, and only the programs of the
    # last few methods are kept.
    for e, label, name in zip(experiments, labels, names, strict=True):
        for seed in seeds:
            baseline = e.baseline
            if local:
                baseline = run_folder(names[0], seed)
            if e.algorithm.name == "local":
                baseline = None
            seeded = e.replace(
                seed=seed, label=label, out=run_folder(name, seed), baseline=baseline
            )
            runs.append(seeded)
    return runs


def _tuned_fedavg(experiments: list[Experiment]) -> list[Experiment]:
    """Fine-tuned FedAvg; nothing if it is among the experiments, or cannot run."""
    for experiment in experiments:
        # Clients of several architectures have no parameters to average.
        if experiment.models:
            return []
        method = experiment.algorithm
        if method.name == "fedavg" and method.options.get("finetune"):
            return []
    like = experiments[0]
    return [like.replace(algorithm=TUNED, label=None, **NO_RHO)]


def _labels(experiments: list[Experiment]) -> tuple[list[str], list[str]]:
    """The label of each experiment, and the name of its folder.

    Raises:
      ValueError: two have one label, or a label names no folder.
    """
    labels = [str(checks.resolve(e).label) for e in experiments]
    names = [re.sub(r"[^A-Za-z0-9.=-]+", "-", label) for label in labels]
    for label, name in zip(labels, names, strict=True):
        # "." and ".." name other folders.
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
    with_tables: bool = False,
    verbose: bool = False,
) -> str:
    """Runs the grid, or what is left of it; writes comparison.html and comparison.csv.

    One run follows another in this process and shares its compiled programs. Runs have
    no pages of their own; `pfljax report RUN` writes one.

    Returns one screen of text: a row for each method, which mean is highest, and
    whether another seed would say the same.

    Args:
      experiments: the methods; they may share all settings but `algorithm`.
      seeds: of the runs.
      out: the folder of folders.
      federation: clients of your own for all methods, or a function of the seed.
      task: a model of your own for all methods, as `run` takes it.
      local: add local training as the baseline.
      finetuned: add FedAvg, fine-tuned by 20 local steps on each client, unless clients
        have several architectures.
      quiet: show no progress on stderr.
      with_tables: write comparison.md and comparison.tex as well.
      verbose: return all tables as Markdown.

    Raises:
      ValueError: an argument is of the wrong type, or a setting is wrong.
    """
    from pfljax.report import write_comparison

    arguments.check_path("out", out, "a folder, such as 'runs/compared'")
    if (Path(out) / "config.json").exists():
        raise folder.FolderError(f"{out} is the folder of a run; choose another out")
    seeds = arguments.list_seeds(seeds)
    runs = grid(experiments, seeds, out, local, finetuned)
    # One for each seed: all methods have the same clients.
    make = arguments.federation_by_seed(federation)
    federations = {seed: make(seed) for seed in seeds}
    # Before anything trains: the last method's misfit would show hours later.
    for experiment in runs[:: len(seeds)]:
        begin.check_method(experiment, federations[experiment.seed], task)
    for experiment in runs:
        clients = federations[experiment.seed]
        run(experiment, clients, task=task, quiet=quiet, report=False)
    folders = [experiment.folder for experiment in runs]
    return write_comparison(folders, out, with_tables=with_tables, verbose=verbose)
