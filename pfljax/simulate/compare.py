"""Several methods on the same clients, cohorts and minibatches, over several seeds."""

from collections.abc import Callable, Iterable
from pathlib import Path

from pfljax.core.types import Task
from pfljax.data import Federation
from pfljax.runs import checks, names
from pfljax.runs.folder import FolderError
from pfljax.runs.settings import Experiment
from pfljax.simulate import arguments, begin
from pfljax.simulate.run import run

TUNED = "fedavg:finetune=20"  # local steps on a client before it is evaluated


def grid(
    experiments: Iterable[Experiment],
    seeds: Iterable[int],
    out: str,
    local: bool = True,
    finetuned: bool = True,
) -> list[Experiment]:
    """Every experiment with every seed, each with its own folder out/LABEL/sSEED.

    Local training is added as the baseline of all unless `local` is False, and
    fine-tuned FedAvg unless `finetuned` is False. All seeds of a method come first,
    then those of the next method.
    """
    experiments = arguments.list_experiments(experiments)
    if finetuned:
        experiments = [*experiments, *_tuned_fedavg(experiments)]
    if local:
        experiments = sorted(experiments, key=lambda e: e.algorithm.name != "local")
        like = experiments[0]
        if like.algorithm.name != "local":
            # Dissimilarity is measured at the server's model, which it has not.
            alone = like.replace(algorithm="local", label="local", dissimilarity=False)
            experiments = [alone, *experiments]
    labels, folders = _labels(experiments)
    seeds = arguments.list_seeds(seeds)
    runs = []
    # The seeds of a method share compiled programs, and only the programs of the last
    # few methods are kept.
    for e, label, name in zip(experiments, labels, folders, strict=True):
        for seed in seeds:
            # Joining with "/" would give the root of the file system if `out` is empty.
            folder = Path(out) / name / f"s{seed}"
            runs.append(e.replace(seed=seed, label=label, out=str(folder)))
    return runs


def _tuned_fedavg(experiments: list[Experiment]) -> list[Experiment]:
    """Fine-tuned FedAvg; [] if it is among the experiments, or cannot run."""
    for experiment in experiments:
        # Clients of several architectures have no parameters to average.
        if experiment.models:
            return []
        method = experiment.algorithm
        if method.name == "fedavg" and method.options.get("finetune"):
            return []
    like = experiments[0]
    return [like.replace(algorithm=TUNED, label=None)]


def _labels(experiments: list[Experiment]) -> tuple[list[str], list[str]]:
    """The labels of the experiments, and the names of their folders.

    Raises:
      ValueError: two have the same label, or a label is not the name of a folder.
    """
    labels = [str(checks.resolve(e).label) for e in experiments]
    folders = [names.label_folder(label) for label in labels]
    if len(set(folders)) < len(folders):
        raise ValueError(
            f"two experiments have the same label: {labels}; set Experiment.label"
        )
    return labels, folders


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
    """Runs all experiments with all seeds; writes comparison.html and comparison.csv.

    Finished runs are not repeated. Runs follow one another in this process and share
    compiled programs. They have no pages of their own; `pfljax report RUN` writes one.

    Returns one screen of text: a row for each method, the method with the best mean,
    and whether another seed would confirm it.

    Args:
      experiments: the methods; all settings but `algorithm` may be the same.
      seeds: the seeds of each method.
      out: the folder that holds the folders of the runs.
      federation: clients of your own for all methods, or a function of the seed.
      task: a model of your own for all methods, as in `run`.
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
        raise FolderError(f"{out} is the folder of a run; choose another out")
    seeds = arguments.list_seeds(seeds)
    runs = grid(experiments, seeds, out, local, finetuned)
    # All methods have the same clients.
    make = arguments.federation_by_seed(federation)
    federations = {seed: make(seed) for seed in seeds}
    # Checked before anything trains: the last method may run hours later.
    for experiment in runs[:: len(seeds)]:
        begin.check_method(experiment, federations[experiment.seed], task)
    for experiment in runs:
        clients = federations[experiment.seed]
        run(experiment, clients, task=task, quiet=quiet, report=False)
    folders = [experiment.folder for experiment in runs]
    return write_comparison(folders, out, with_tables=with_tables, verbose=verbose)
